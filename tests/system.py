# SPDX-License-Identifier: Apache-2.0
"""What the tests need from the machine they run on."""

import os
import shutil

import pytest


def need(tool: str, package: str) -> None:
    """Skip without `tool`, or fail where GPUAUDIT_REQUIRE_SYSTEM=1 promised that it is there."""
    if shutil.which(tool):
        return
    missing = f"needs {tool} (package {package})"
    if os.environ.get("GPUAUDIT_REQUIRE_SYSTEM") == "1":
        pytest.fail(missing)
    pytest.skip(missing)
