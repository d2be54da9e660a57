# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from smbios import END, FLASH, HBM2, OPTANE, TABLE, array, module, structure, table
from trees import make_host

from gpuaudit.facts.dimms import Dimms, channel_in, dimms, lettered, system_memory, with_channels
from gpuaudit.host import NotApplicable, Unavailable
from gpuaudit.snapshot.smbios import without_identifiers


def read(folder: Path, data: bytes) -> Dimms:
    return dimms(make_host(folder, {TABLE: data}), machine())


def named(*names: tuple[str, str]) -> Dimms:
    data = table(*(module(locator, bank) for locator, bank in names))
    return Dimms(slots=tuple(with_channels(list(system_memory(data)))))


def test_one_module(tmp_path: Path) -> None:
    data = table(module("A1", "Bank 1", gib=64, rank=2, rated=5600, configured=4800), module("A2"))
    one = read(tmp_path, data).slots[0]
    assert (one.slot, one.size_mib, one.rank) == ("A1 Bank 1", 65536, 2)
    assert (one.rated_mts, one.configured_mts, one.array) == (5600, 4800, 0x1000)


@pytest.mark.parametrize(("gib", "size", "filled"), [(0, 0, False), (None, None, True)])
def test_empty_and_untold(
    tmp_path: Path, gib: int | None, size: int | None, *, filled: bool
) -> None:
    found = read(tmp_path, table(module("A1"), module("A2", gib=gib)))
    assert (found.slots[1].size_mib, found.slots[1].filled) == (size, filled)


def test_flash_and_persistent_memory_are_left_out(tmp_path: Path) -> None:
    flash = array(0x2000, FLASH) + module("ROM", gib=1, of=0x2000)
    hbm = module("CPU1_HBM_1", gib=16, kind=HBM2)
    found = read(tmp_path, table(module("A1"), flash, hbm, module("A9", technology=OPTANE)))
    assert [one.slot for one in found.slots] == ["A1 -"]


def test_an_old_small_module() -> None:
    """SMBIOS 2.1: 0x15 bytes, size in KiB, neither speed nor rank."""
    old = structure(
        17, 7, bytes([0, 0x10, 0, 0, 72, 0, 64, 0, 0, 0x82, 9, 0, 1, 0, 15, 0, 0]), "J1"
    )
    (one,) = system_memory(array(0x1000) + old + END)
    assert (one.slot, one.size_mib, one.rank, one.rated_mts) == ("J1", 0, None, None)


@pytest.mark.parametrize(
    ("names", "channels"),
    [
        ([("P1-DIMMA1", ""), ("P1-DIMMA2", ""), ("P1-DIMMB1", ""), ("P1-DIMMB2", "")], 2),
        ([("DIMM 0", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL A"), ("DIMM 0", "P1 CHANNEL A")], 0),
        ([("DIMM 0", "P0 CHANNEL A"), ("DIMM 0", "P0 CHANNEL B"), ("DIMM 0", "P1 CHANNEL A")], 3),
        ([("A1", ""), ("A2", ""), ("A3", ""), ("A4", ""), ("B1", ""), ("B2", ""), ("B3", "")], 0),
        ([("PROC 1 DIMM 1", ""), ("PROC 1 DIMM 2", "")], 0),
        ([("P1-DIMMA1", ""), ("P1-DIMMA2", "")], 0),
        ([("CPU0_DIMM_A1", ""), ("CPU1_DIMM_A1", "")], 2),
    ],
)
def test_channels(names: list[tuple[str, str]], channels: int) -> None:
    assert len(named(*names).channels) == channels


def test_words_of_channels() -> None:
    assert channel_in("CPU1_A1", "BANK 3 Channel B") == "CPU1  Channel B"
    assert channel_in("P0_Node1_Channel0_Dimm1", "") == "P0 P0_Node1_Channel0"
    assert channel_in("DIMM_A1", "NODE 1") == ""
    assert (lettered("DIMM_P0_A0"), lettered("7")) == ("DIMM_P0_A", "")


def test_a_guest(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="made up by the hypervisor"):
        dimms(make_host(tmp_path, {TABLE: table(module("A1"))}), machine("kvm"))


@pytest.mark.parametrize("data", [b"", b"\x11\x02", b"\x11\x54\0\0abc", END])
def test_a_table_without_memory(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Unavailable, match="names no memory module"):
        read(tmp_path, data)


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="no SMBIOS table"):
        dimms(make_host(tmp_path, {}), machine())


@pytest.mark.parametrize(
    ("tree", "source"), [({}, "plain"), ({"/run/.containerenv": ""}, "snapshot")]
)
def test_a_table_that_may_be_hidden(tmp_path: Path, tree: dict[str, str], source: Any) -> None:
    with pytest.raises(Unavailable):
        dimms(make_host(tmp_path, tree, source=source), machine())


@given(st.binary(max_size=300), st.integers(0, 255))
def test_no_table_breaks_the_parser(data: bytes, cut: int) -> None:
    for text in (data, table(module("A1"))[:cut], table(module("A1"), data)):
        with suppress(Unavailable):
            list(system_memory(text))
        without_identifiers(text)


def test_scrubbing_keeps_modules_and_no_serial_number() -> None:
    system = structure(1, 1, bytes(23), "Maker", "Product", "SERIALOFTHESYSTEM")
    data = array(0x1000) + system + module("A1", "Channel A", serial="S123456") + END
    clean = without_identifiers(data)
    assert list(system_memory(clean)) == list(system_memory(data))
    assert b"S123456" not in clean
    assert b"SERIALOFTHESYSTEM" not in clean
    assert b"PART" in clean
