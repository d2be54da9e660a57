# SPDX-License-Identifier: Apache-2.0
"""Decoding config space, whole, cut and hostile."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcitree import ACS_AT, EXTRA_AT, ROOT_PORT, config_space
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.pciconfig import (
    Acs,
    ConfigSpace,
    bit_names,
    capabilities,
    decode,
    extended_capabilities,
    read_config,
)


def decoded(space: bytes) -> ConfigSpace:
    found = decode(space)
    assert isinstance(found, ConfigSpace)
    return found


def test_a_root_port() -> None:
    found = decoded(config_space(ROOT_PORT, acs=0x1D))
    assert found.acs == Acs(capability=0x5F, control=0x1D)
    assert isinstance(found.ats_enabled, Absent)
    express = found.express
    assert not isinstance(express, Absent)
    assert express.port_type == "root port"
    assert (express.max_speed_gt_per_s, express.max_width) == (32.0, 16)
    assert (express.speed_gt_per_s, express.width) == (8.0, 8)
    assert express.target_speed_gt_per_s == 16.0
    assert (express.max_payload_bytes, express.max_payload_supported_bytes) == (512, 512)
    assert (express.max_read_request_bytes, express.relaxed_ordering) == (512, True)


@pytest.mark.parametrize(
    ("control", "redirects"),
    [(0x00, 0), (0x11, 0), (0x1D, 0x0C), (0x1F, 0x0C), (0x5F, 0x0C), (0x20, 0x20), (0x04, 0x04)],
)
def test_which_bits_redirect(control: int, redirects: int) -> None:
    assert Acs(capability=0x7F, control=control).redirects == redirects


@pytest.mark.parametrize(("control", "on"), [(0x8000, True), (0x7FFF, False)])
def test_ats(control: int, on: bool) -> None:
    assert decoded(config_space(ats=control)).ats_enabled is on


def test_64_bytes_need_root() -> None:
    found = decoded(config_space(acs=0)[:64])
    assert isinstance(found.acs, Absent)
    assert isinstance(found.express, Absent)
    assert (found.acs.kind, found.express.kind) == ("denied", "denied")
    assert "root" in found.acs.reason


def test_256_bytes_hide_the_extended_space() -> None:
    found = decoded(config_space(acs=0)[:256])
    assert isinstance(found.acs, Absent)
    assert found.acs.kind == "failed"
    assert not isinstance(found.express, Absent)


def test_no_acs_is_not_unread() -> None:
    found = decoded(config_space()).acs
    assert isinstance(found, Absent)
    assert found.kind == "unsupported"


def test_a_dead_device() -> None:
    found = decode(b"\xff" * 4096)
    assert isinstance(found, Absent)
    assert "does not answer" in found.reason


def test_a_circle_of_extended_capabilities_ends() -> None:
    space = bytearray(config_space(acs=0))
    struct.pack_into("<I", space, ACS_AT, EXTRA_AT << 20 | 0x1000D)
    assert list(extended_capabilities(bytes(space)).at) == [0x01, 0x0D]


def test_a_circle_of_capabilities_ends() -> None:
    space = bytearray(config_space())
    space[0x61] = 0x40
    assert list(capabilities(bytes(space)).at) == [0x01, 0x10]


def test_a_capability_at_the_very_end() -> None:
    space = bytearray(config_space())
    struct.pack_into("<I", space, EXTRA_AT, 0xFFC << 20 | 0x20001)
    struct.pack_into("<I", space, 0xFFC, 0x1000D)
    found = decoded(bytes(space)).acs
    assert isinstance(found, Absent)
    assert found.kind == "failed"


@given(st.binary(max_size=300), st.integers(0, 255))
def test_nothing_makes_it_crash(noise: bytes, pointer: int) -> None:
    space = bytearray((noise + bytes(4096))[:4096])
    space[0x34] = pointer
    for size in (len(noise), 64, 256, 4096):
        found = decode(bytes(space[:size]))
        assert isinstance(found, (ConfigSpace, Absent))


def test_reading(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/d/config": config_space(acs=4)})
    found = read_config(host, "/sys/d")
    assert isinstance(found, ConfigSpace)
    assert isinstance(read_config(host, "/sys/none"), Absent)


def test_bit_names() -> None:
    assert (bit_names(0x1D), bit_names(0)) == ("SV+RR+CR+UF", "none")


@pytest.mark.parametrize("size", [257, 300, 0x140, 0x142])
def test_a_cut_list_of_extended_capabilities_proves_nothing(size: int) -> None:
    acs = decoded(config_space(ROOT_PORT, acs=0x1D)[:size]).acs
    assert isinstance(acs, Absent)
    assert acs.kind == "failed"


@given(st.integers(0, 4096))
def test_no_length_makes_a_redirecting_port_harmless(size: int) -> None:
    found = decode(config_space(ROOT_PORT, acs=0x1D)[:size])
    acs = found if isinstance(found, Absent) else found.acs
    assert acs.kind != "unsupported" if isinstance(acs, Absent) else acs.redirects == 0x0C


@pytest.mark.parametrize(
    ("at", "noise"),
    [
        (0x34, b"\x44"),
        (0x34, b"\x10"),
        (0x100, b"\xff" * 4),
        (0x102, b"\x02\x08"),
        (0x106, b"\x01"),
    ],
    ids=["no-express", "below-the-header", "all-ones", "below-256", "other-bytes"],
)
def test_a_broken_list_proves_nothing(at: int, noise: bytes) -> None:
    space = bytearray(config_space(ROOT_PORT, acs=0x1D))
    space[at : at + len(noise)] = noise
    acs = decoded(bytes(space)).acs
    assert acs.kind == "failed" if isinstance(acs, Absent) else acs.redirects


def test_zeros_are_no_config_space() -> None:
    assert decode(bytes(4096)) == Absent(
        "failed", "config space starts with zeros: this is not what the device said"
    )


def test_extended_registers_need_the_capability_that_brings_them() -> None:
    space = bytearray(config_space(ROOT_PORT, acs=0x1D))
    space[0x06] = 0
    acs = decoded(bytes(space)).acs
    assert isinstance(acs, Absent)
    assert acs.kind == "failed"
