# SPDX-License-Identifier: Apache-2.0
"""`python -m gpuaudit`, the same as the command `gpuaudit`."""

from gpuaudit.cli import main

if __name__ == "__main__":
    main()
