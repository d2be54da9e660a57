# SPDX-License-Identifier: Apache-2.0
"""The built-in checks, one subject a file."""
