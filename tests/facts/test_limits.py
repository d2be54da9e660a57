# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.limits import (
    Limit,
    Limits,
    RdmaNeed,
    Reading,
    parse_limits,
    process_limits,
    rdma_need,
    reaches,
    show_bytes,
    show_limit,
)
from gpuaudit.facts.memory import TotalMemory, total_memory
from gpuaudit.facts.node import machine
from gpuaudit.facts.rdma import InfinibandDevices, infiniband_devices
from gpuaudit.host import Unavailable

TABLE = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
"""


def test_the_table_is_read() -> None:
    limits = parse_limits(TABLE, "/proc/1/limits")
    assert limits == Limits(memlock=Limit(8388608, None), nofile=Limit(1024, 524288))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Max locked memory",
        "Max locked memory 1\nMax open files 1 1",
        TABLE.replace("unlimited            bytes", "a lot bytes"),
        TABLE.replace("8388608", "9" * 30),
    ],
)
def test_a_garbled_table_is_unavailable(text: str) -> None:
    with pytest.raises(Unavailable, match="Max locked memory") as raised:
        parse_limits(text, "/proc/1/limits")
    assert raised.value.kind == "garbled"


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(Unavailable):
        parse_limits(f"Max locked memory {text}\nMax open files {text}", "/proc/1/limits")


@pytest.mark.parametrize(("capabilities", "may"), [("000001ffffffffff", True), ("0", False)])
def test_the_audits_own_limits(tmp_path: Path, capabilities: str, may: bool) -> None:
    tree: Tree = {
        "/proc/self": Link("77"),
        "/proc/77/limits": TABLE,
        "/proc/77/status": f"Name:\tpython\nCapEff:\t{capabilities}\n",
    }
    fact = process_limits(make_host(tmp_path, tree))
    assert fact.reading.memlock == Limit(8388608, None)
    assert fact.may_lock_anyway is may


def test_own_limits_that_cannot_be_read(tmp_path: Path) -> None:
    fact = process_limits(make_host(tmp_path, {}, source="plain"))
    assert isinstance(fact.reading.memlock, Absent)
    assert fact.reading.memlock.kind == "failed"
    assert fact.may_lock_anyway is None


def test_an_image_has_no_limits_of_its_own(tmp_path: Path) -> None:
    fact = process_limits(make_host(tmp_path, {}, source="image"))
    assert fact.reading.nofile == Absent("unsupported", "an image has no running kernel")


def test_devices_are_listed(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/class/infiniband/mlx5_0/node_type": "1: CA"})
    assert infiniband_devices(host).names == ("mlx5_0",)


def test_a_kernel_without_rdma_has_no_devices(tmp_path: Path) -> None:
    assert infiniband_devices(make_host(tmp_path, {})).names == ()


@pytest.mark.parametrize(("source", "kind"), [("plain", "failed"), ("image", "unsupported")])
def test_devices_that_are_not_known(tmp_path: Path, source: str, kind: str) -> None:
    names = infiniband_devices(make_host(tmp_path, {}, source=source)).names  # type: ignore[arg-type]  # a parameter
    assert isinstance(names, Absent)
    assert names.kind == kind


def test_what_limits_are_compared_with(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/proc/meminfo": "MemTotal:   1024 kB\n"})
    need = rdma_need(host, InfinibandDevices(names=("a",)), total_memory(host), machine(host))
    assert need.memory_bytes == 1 << 20
    assert need.has_devices
    assert not need.image


def test_memory_that_is_not_known_stays_unknown(tmp_path: Path) -> None:
    host = make_host(tmp_path, {})
    why = Absent("failed", "gone")
    need = rdma_need(host, InfinibandDevices(names=why), TotalMemory(kib=why), machine(host))
    assert need.memory_bytes is why
    assert not need.has_devices


@pytest.mark.parametrize(
    ("limit", "wanted", "memory", "good"),
    [
        (None, None, 0, True),
        (None, 5, 0, True),
        (5, 5, 0, True),
        (4, 5, 0, False),
        (1 << 40, None, 1 << 40, True),
        ((1 << 40) - 1, None, 1 << 40, False),
        (1 << 60, None, Absent("failed", "gone"), False),
        (0, None, 0, False),
    ],
)
def test_reaches(limit: int | None, wanted: int | None, memory: int | Absent, good: bool) -> None:
    assert reaches(limit, wanted, memory) is good


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "unlimited"),
        (0, "0 B"),
        (1023, "1023 B"),
        (8 << 20, "8 MiB"),
        (127401984, "121.5 MiB"),
        (2 << 40, "2 TiB"),
        (1 << 70, "1024 EiB"),
    ],
)
def test_show_bytes(amount: int | None, text: str) -> None:
    assert show_bytes(amount) == text


def test_show_limit() -> None:
    assert show_limit(Limit(None, None)) == "unlimited"
    assert show_limit(Limit(65536, None)) == "soft 64 KiB, hard unlimited"
    assert show_limit(Limit(1024, 4096), of_bytes=False) == "soft 1024, hard 4096"


def test_remarks() -> None:
    need = RdmaNeed(devices=(), memory_bytes=100, container=True, image=False)
    reading = Reading(
        subject="x", memlock=Limit(1, None), nofile=Limit(1, 1), now=True, advisory="why"
    )
    assert need.remark(reading, None, None) == (
        "; why; the hard limit would do"
        "; the container's runtime sets it; no RDMA device is here now"
    )
