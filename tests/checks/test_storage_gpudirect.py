# SPDX-License-Identifier: Apache-2.0
"""GPUDirect Storage."""

from typing import Any

import pytest
from judging import judge

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpudirectstorage import GpuDirectStorage

NO_JSON = Absent("failed", "/etc/cufile.json is no JSON: truncated")
IMAGE = Absent("unsupported", "an image has no running kernel")
LOST = Absent("failed", "was not recorded")


@pytest.mark.parametrize(
    ("version", "config", "want", "expected"),
    [
        ("version: 2.25", {}, "any", ["pass", "pass"]),
        ("version: 2.25", None, "any", ["pass", "pass"]),
        ("version: 2.25", {"properties.force_compat_mode": True}, "any", ["pass", "warn"]),
        ("version: 2.25", {"properties.force_compat_mode": False}, "any", ["pass", "pass"]),
        ("version: 2.25", NO_JSON, "any", ["pass", "warn"]),
        ("version: 2.25", LOST, "any", ["pass", "unknown"]),
        (None, {}, "required", ["fail", "pass"]),
        (None, {"properties.use_pci_p2pdma": True}, "required", ["pass", "pass"]),
        (LOST, {}, "any", ["unknown", "pass"]),
        (IMAGE, NO_JSON, "any", ["notapplicable", "warn"]),
    ],
)
def test_gpudirect(version: Any, config: Any, want: str, expected: list[str]) -> None:
    facts = GpuDirectStorage(version=version, config=config)
    found = judge("storage_gpudirect/storage-gpudirect", facts, gpudirect=want)
    assert [one.verdict.value for one in found] == expected


@pytest.mark.parametrize(("version", "config"), [(None, {}), (IMAGE, None)])
def test_nobody_asks_for_it(version: Any, config: Any) -> None:
    facts = GpuDirectStorage(version=version, config=config)
    with pytest.raises(NotApplicable):
        judge("storage_gpudirect/storage-gpudirect", facts)
