# SPDX-License-Identifier: Apache-2.0
"""Control words, whole, cut and hostile; and whose are read."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcitree import BARE_METAL, EXPRESS_AT, GUEST, NIC, ROOT_PORT, Files, config_space, function
from pciwords import EVERYWHERE, GPU_AT, NIC_AT, OVER_NIC, ROOT, TREE, UP, words
from trees import make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.pciregisters import PciRegisters, Registers, decode_registers


def decoded(space: bytes) -> Registers:
    found = decode_registers(space)
    assert isinstance(found, Registers)
    return found


def put(space: bytes, offset: int, form: str, *values: int) -> bytes:
    changed = bytearray(space)
    struct.pack_into(form, changed, offset, *values)
    return bytes(changed)


def test_a_root_port() -> None:
    found = decoded(config_space(ROOT_PORT))
    assert (found.payload, found.payload_most, found.read_request) == (512, 512, 512)
    assert (found.tags, found.aspm, found.l1_exit_us) == (256, 0, 1)
    assert found.reports == (False, False, False)
    assert isinstance(found.resizable, Absent)
    assert found.resizable.kind == "unsupported"


@pytest.mark.parametrize(("code", "most_us"), [(0, 1), (4, 16), (6, 64), (7, 64)])
def test_how_long_l1_takes_to_leave(code: int, most_us: int) -> None:
    space = put(config_space(), EXPRESS_AT + 0x0C, "<I", code << 15)
    assert decoded(space).l1_exit_us == most_us


def test_a_first_version_has_no_second_words() -> None:
    old = put(config_space(), EXPRESS_AT + 2, "<H", 1)
    found = decoded(put(old, EXPRESS_AT + 0x24, "<IH", 0x30000, 0x1000))
    assert (found.capability_2, found.control_2, found.ten_bit_requester) == (None, 0, False)
    assert found.tags == 256


@pytest.mark.parametrize(("size", "kind"), [(64, "denied"), (10, "failed"), (0, "failed")])
def test_config_space_that_is_cut(size: int, kind: str) -> None:
    found = decode_registers(config_space()[:size])
    assert isinstance(found, Absent)
    assert found.kind == kind


def test_without_extended_space_the_words_are_known_and_the_bars_are_not() -> None:
    found = decoded(config_space()[:256]).resizable
    assert isinstance(found, Absent)
    assert found.kind == "failed"


@pytest.mark.parametrize("count", [0, 7])
def test_an_impossible_number_of_bars(count: int) -> None:
    space = put(config_space(), 0x100, "<I", 0x10015)
    found = decoded(put(space, 0x108, "<I", count << 5)).resizable
    assert isinstance(found, Absent)
    assert found.kind == "failed"


@given(st.binary(max_size=300), st.integers(0, 255))
def test_nothing_makes_it_crash(noise: bytes, pointer: int) -> None:
    space = bytearray((noise + bytes(4096))[:4096])
    space[0x34] = pointer
    for size in (len(noise), 64, 256, 4096):
        found = decode_registers(bytes(space[:size]))
        assert isinstance(found, (Registers, Absent))
        if isinstance(found, Registers):
            assert found.payload >= 128 <= found.read_request


def read(folder: Path, files: Files, platform: Files = BARE_METAL) -> PciRegisters:
    found: PciRegisters = Facts(make_host(folder, {**platform, **files})).get(PciRegisters)
    return found


def test_every_step_of_the_way_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, TREE).by_address
    assert set(found) == set(EVERYWHERE)
    assert all(isinstance(one, Registers) for one in found.values())


def test_a_guest_is_not_read(tmp_path: Path) -> None:
    host = make_host(tmp_path, {**GUEST, **TREE})
    assert Facts(host).get(PciRegisters).by_address == {}
    assert not any(path.endswith("/config") for path in host.evidence.files)


def test_a_nic_without_a_driver_is_not_read(tmp_path: Path) -> None:
    place = f"pci0000:15/{ROOT}/{UP}/{OVER_NIC}/{NIC_AT}"
    unbound = function(place, NIC, vendor=0x15B3, device=0x1021, driver=None)
    bare = {k: v for k, v in TREE.items() if NIC_AT not in k}
    assert set(read(tmp_path, {**bare, **unbound}).by_address) == set(EVERYWHERE) - {
        NIC_AT,
        OVER_NIC,
    }


def test_neighbours_are_read_only_where_payloads_could_be_larger(tmp_path: Path) -> None:
    place = f"pci0000:15/{ROOT}/{UP}/{OVER_NIC}/0000:19:00.1"
    beside = function(place, 0x068000, vendor=0x1234, driver=None, config=config_space())
    found = read(tmp_path / "a", {**TREE, **beside})
    assert "0000:19:00.1" not in found.by_address
    files = {**TREE, **beside}
    for address in EVERYWHERE:
        files = words(files, address, control=0x0000)
    found = read(tmp_path / "b", files)
    assert isinstance(found.by_address["0000:19:00.1"], Registers)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    gone = {k: v for k, v in TREE.items() if not k.endswith(f"{GPU_AT}/config")}
    found = read(tmp_path, gone).by_address[GPU_AT]
    assert isinstance(found, Absent)
    assert found.kind == "missing"
