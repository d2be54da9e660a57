# SPDX-License-Identifier: Apache-2.0
"""What the tests need from the machine they run on."""

import os
import shutil
from typing import NoReturn

import pytest


def need(tool: str, package: str) -> None:
    """Skip without `tool`, or fail where GPUAUDIT_REQUIRE_SYSTEM=1 promised that it is there."""
    if shutil.which(tool):
        return
    lacking(f"needs {tool} (package {package})")


def lacking(missing: str) -> NoReturn:
    """Skip for want of something, or fail where GPUAUDIT_REQUIRE_SYSTEM=1 promised it."""
    if os.environ.get("GPUAUDIT_REQUIRE_SYSTEM") == "1":
        pytest.fail(missing)
    pytest.skip(missing)
