# SPDX-License-Identifier: Apache-2.0
"""Address windows of GPUs."""

import struct
from pathlib import Path

import pytest
from judging import judge
from machines import gpu, machine, nic, pci
from pcitree import GUEST, Files
from pciwords import GPU_AT, TREE, findings, place

from gpuaudit.check import NotApplicable, Verdict
from gpuaudit.facts.base import Absent
from gpuaudit.facts.pciregisters import PciRegisters, Registers, Resizable, decode_registers

ASSIGNED, SIZES = "pcie_bar/pcie-bar-assigned", "pcie_bar/pcie-bar-resizable"
REGISTERS = "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200"
MEMORY = "0x000021a000000000 0x000021bfffffffff 0x000000000014220c"
SMALL_AND_LOW = "0x00000000e0000000 0x00000000efffffff 0x000000000014220c"
NO_ROOM = "0x0000000000000000 0x0000001fffffffff 0x000000002014220c"
NOTHING = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
MIB = 1 << 20


def with_bars(*lines: str) -> Files:
    text = "\n".join([*lines, *[NOTHING] * (13 - len(lines))]) + "\n"
    return {**TREE, f"{place(TREE, GPU_AT)}/resource": text}


def test_windows_with_an_address(tmp_path: Path) -> None:
    found = findings(ASSIGNED, tmp_path, with_bars(REGISTERS, NOTHING, MEMORY))
    assert found[GPU_AT].verdict is Verdict.PASS
    assert found[GPU_AT].observed == "BAR 0 16 MiB below 4 GiB; BAR 2 128 GiB above 4 GiB"


def test_a_guest_is_judged_too(tmp_path: Path) -> None:
    found = findings(ASSIGNED, tmp_path, with_bars(REGISTERS, MEMORY), GUEST)
    assert found[GPU_AT].verdict is Verdict.PASS


def test_a_small_window_below_4_gib_is_enough_for_a_small_board(tmp_path: Path) -> None:
    found = findings(ASSIGNED, tmp_path, with_bars(REGISTERS, SMALL_AND_LOW))
    assert found[GPU_AT].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("bars", "words"),
    [
        ((REGISTERS, NOTHING, NO_ROOM), "BAR 2 (128 GiB) has no address"),
        ((NOTHING, NOTHING, MEMORY), "BAR 0, which holds its registers"),
        ((REGISTERS,), "its large memory window has no address"),
    ],
)
def test_windows_without_one(tmp_path: Path, bars: tuple[str, ...], words: str) -> None:
    found = findings(ASSIGNED, tmp_path, with_bars(*bars))
    assert found[GPU_AT].verdict is Verdict.FAIL
    assert words in found[GPU_AT].message


def test_a_gpu_in_the_memory_of_its_cpu(tmp_path: Path) -> None:
    """DGX Spark: one window, 64-bit and not prefetchable."""
    spark = with_bars("0x0000000024000000 0x0000000027ffffff 0x0000000000140204")
    spark[f"{place(TREE, GPU_AT)}/uevent"] = "DRIVER=nvidia\nPCI_CLASS=30000\nPCI_ID=10DE:2E12\n"
    assert findings(ASSIGNED, tmp_path, spark)[GPU_AT].verdict is Verdict.PASS


@pytest.mark.parametrize("text", [None, "", "zero zero zero\n" * 13, "0x0\n" * 13])
def test_a_file_that_tells_nothing(tmp_path: Path, text: str | None) -> None:
    more = {} if text is None else {f"{place(TREE, GPU_AT)}/resource": text}
    found = findings(ASSIGNED, tmp_path, {**TREE, **more})
    assert found[GPU_AT].verdict is Verdict.UNKNOWN


def registers(sizes: tuple[Resizable, ...] | Absent) -> PciRegisters:
    one = Registers(0, 0, 0, 0, 0, 0, sizes)
    return PciRegisters(by_address={GPU_AT: one})


def sized(sizes: tuple[Resizable, ...] | Absent, hypervisor: str = "", **want: str) -> str:
    node = machine(hypervisor)
    (found,) = judge(SIZES, registers(sizes), pci(gpu(GPU_AT)), node, **want)
    return found.verdict.value


def test_the_largest_size_on_offer() -> None:
    assert sized((Resizable(1, 32768 * MIB, 32768 * MIB),)) == "pass"
    assert sized((Resizable(1, 256 * MIB, 32768 * MIB),)) == "warn"
    assert sized(Absent("unsupported", "it has no extended capability")) == "notapplicable"
    assert sized(Absent("denied", "needs root")) == "unknown"


def test_what_a_small_window_costs() -> None:
    small = registers((Resizable(1, 256 * MIB, 32768 * MIB),))
    (found,) = judge(SIZES, small, pci(gpu(GPU_AT)), machine())
    assert found.cost == "others reach 256 MiB of its memory at once, instead of up to 32 GiB"


def test_where_sizes_are_not_judged() -> None:
    for arguments in ({"hypervisor": "kvm"}, {"resizable": "any"}):
        with pytest.raises(NotApplicable):
            sized((Resizable(1, 256 * MIB, 32768 * MIB),), **arguments)
    with pytest.raises(NotApplicable, match="no NVIDIA GPU"):
        judge(SIZES, registers(()), pci(nic("0000:19:00.0")), machine())
    empty = PciRegisters(by_address={})
    assert judge(SIZES, empty, pci(gpu(GPU_AT)), machine())[0].verdict is Verdict.UNKNOWN


def test_the_capability_in_config_space(tmp_path: Path) -> None:
    """Two BARs: 256 MiB of up to 32 GiB, and 32 MiB of 32 MiB."""
    at = 0x140
    space = bytearray(config_of(tmp_path))
    struct.pack_into("<I", space, 0x100, at << 20 | 0x20001)
    sizes = (1 << 4 + 8 | 1 << 4 + 15, 1 << 4 + 5)
    controls = (8 << 8 | 2 << 5 | 1, 5 << 8 | 3)
    struct.pack_into("<I", space, at, 0x10015)
    struct.pack_into("<4I", space, at + 4, sizes[0], controls[0], sizes[1], controls[1])
    found = decode_registers(bytes(space))
    assert isinstance(found, Registers)
    assert found.resizable == (
        Resizable(1, 256 * MIB, 32768 * MIB),
        Resizable(3, 32 * MIB, 32 * MIB),
    )


def config_of(_: Path) -> bytes:
    space = TREE[f"{place(TREE, GPU_AT)}/config"]
    assert isinstance(space, bytes)
    return space
