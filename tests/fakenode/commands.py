# SPDX-License-Identifier: Apache-2.0
"""Output of the commands that the audit runs on a live machine."""

from typing import Any

from fakenvml import DRIVER

SYSTEMD_LIMITS = """\
DefaultLimitNOFILE=1048576
DefaultLimitNOFILESoft=1048576
DefaultLimitMEMLOCK=infinity
DefaultLimitMEMLOCKSoft=infinity
"""
LIMIT_NAMES = (
    "DefaultLimitMEMLOCK,DefaultLimitMEMLOCKSoft,DefaultLimitNOFILE,DefaultLimitNOFILESoft"
)


def commands() -> list[dict[str, Any]]:
    """commands.json."""
    return [
        command("systemctl", "show", f"--property={LIMIT_NAMES}", stdout=SYSTEMD_LIMITS),
        fabric_manager(DRIVER),
    ]


def fabric_manager(version: str) -> dict[str, Any]:
    """What Fabric Manager says of itself."""
    text = f"Fabric Manager version is : {version}\n"
    return command("nv-fabricmanager", "--version", stdout=text)


def command(*argv: str, stdout: str, returncode: int = 0) -> dict[str, Any]:
    """One command with its output."""
    return {"argv": list(argv), "output": {"returncode": returncode, "stdout": stdout}}
