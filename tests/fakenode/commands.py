# SPDX-License-Identifier: Apache-2.0
"""Output of the commands that the audit runs on a live machine."""

from typing import Any


def commands() -> list[dict[str, Any]]:
    """commands.json."""
    return []


def command(*argv: str, stdout: str, returncode: int = 0) -> dict[str, Any]:
    """One command with its output."""
    return {"argv": list(argv), "output": {"returncode": returncode, "stdout": stdout}}
