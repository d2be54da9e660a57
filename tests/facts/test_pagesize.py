# SPDX-License-Identifier: Apache-2.0
import struct
from pathlib import Path

import msgspec
import pytest
from machines import machine
from trees import make_host

from gpuaudit.facts.pagesize import AUXV, page_size, page_size_in
from gpuaudit.host import NotApplicable, Unavailable

ARM = msgspec.structs.replace(machine(), architecture="aarch64")
GRACE = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n"


def vector(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *pair) for pair in pairs)


@pytest.mark.parametrize(
    ("cpuinfo", "grace"),
    [
        (f"processor\t: 0\n{GRACE}\nprocessor\t: 1\n{GRACE}", True),
        (GRACE.replace("0xd4f", "0xd0c"), False),
        ("", False),
    ],
)
def test_a_kernel_with_64_kib(tmp_path: Path, cpuinfo: str, *, grace: bool) -> None:
    tree: dict[str, str | bytes] = {
        AUXV: vector((33, 7), (16, 1), (6, 65536), (0, 0)),
        "/proc/cpuinfo": cpuinfo,
    }
    found = page_size(make_host(tmp_path, tree), ARM)
    assert (found.kib, found.grace) == (64, grace)


def test_x86(tmp_path: Path) -> None:
    x86 = msgspec.structs.replace(machine(), architecture="x86_64")
    with pytest.raises(NotApplicable, match="4 KiB only"):
        page_size(make_host(tmp_path, {}), x86)


@pytest.mark.parametrize("data", [b"", b"abc", vector((16, 1), (0, 0), (6, 4096)), vector((6, 0))])
def test_a_vector_without_a_page_size(data: bytes) -> None:
    with pytest.raises(Unavailable, match="names no page size"):
        page_size_in(data)


def test_the_running_kernel() -> None:
    assert page_size_in(Path(AUXV).read_bytes()) in {4096, 16384, 65536}


def test_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        page_size(make_host(tmp_path, {}, source="plain"), ARM)
