# SPDX-License-Identifier: Apache-2.0
"""IOMMU groups of GPUs and NICs."""

from pathlib import Path

import pytest
from pcitree import GPU, Files, function
from trees import Link, Source, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.iommu import IommuGroup, iommu_groups
from gpuaudit.facts.pci import pci_devices

PLACE = "pci0000:00/0000:01:00.0"
GROUP = Link("../../../kernel/iommu_groups/7")


def group(folder: Path, files: Files, source: Source = "snapshot") -> object:
    host = make_host(folder, {**function(PLACE, GPU), **files}, source=source)
    return iommu_groups(host, pci_devices(host)).by_address["0000:01:00.0"]


def test_a_group_with_its_type(tmp_path: Path) -> None:
    files: Files = {
        f"/sys/devices/{PLACE}/iommu_group": GROUP,
        "/sys/kernel/iommu_groups/7/type": "DMA-FQ\n",
    }
    assert group(tmp_path, files) == IommuGroup(number="7", type="DMA-FQ")


def test_a_kernel_without_the_type_file(tmp_path: Path) -> None:
    files: Files = {
        f"/sys/devices/{PLACE}/iommu_group": GROUP,
        "/sys/kernel/iommu_groups/7": None,
    }
    found = group(tmp_path, files)
    assert isinstance(found, IommuGroup)
    assert isinstance(found.type, Absent)


@pytest.mark.parametrize(("source", "expected"), [("snapshot", None), ("plain", Absent)])
def test_no_group_is_told_from_no_recording(
    tmp_path: Path, source: Source, expected: type[Absent] | None
) -> None:
    found = group(tmp_path, {}, source)
    assert found is None if expected is None else isinstance(found, expected)
