# SPDX-License-Identifier: Apache-2.0
"""Reads whose driver never answers cost their deadline once, and nobody waits for the child."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gpuaudit.deadline import OutOfTimeError, time_limit
from gpuaudit.host.errors import Unavailable
from gpuaudit.host.patient import PatientReader, driver_of

DEADLINE_S = 0.5


def made_up(path: str, limit: int) -> bytes:
    """A tree in which one file sleeps for ever, one is missing and one kills the reader."""
    if path.endswith("sleeps"):
        time.sleep(3600)
    if path.endswith("dies"):
        os._exit(1)
    if path.endswith("missing"):
        raise Unavailable("not there", "missing")
    return (path.encode() * 100_000)[:limit]


@pytest.fixture
def reader() -> Iterator[PatientReader]:
    one = PatientReader(made_up, DEADLINE_S)
    yield one
    one.close()


def test_contents_come_back_whole(reader: PatientReader) -> None:
    for limit in (1, 10, 1_000_000):
        assert reader.read("/proc/driver/x", limit) == made_up("/proc/driver/x", limit)


def test_absence_keeps_its_kind_and_reason(reader: PatientReader) -> None:
    with pytest.raises(Unavailable, match="not there") as caught:
        reader.read("/proc/driver/missing", 10)
    assert caught.value.kind == "missing"
    assert reader.read("/proc/driver/x", 5) == b"/proc"


def test_a_hung_read_costs_its_deadline_once(reader: PatientReader) -> None:
    began = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"/proc/driver/sleeps did not answer within 0.5 s"
    ) as caught:
        reader.read("/proc/driver/sleeps", 10)
    assert caught.value.kind == "hung"
    for _ in range(20):
        with pytest.raises(Unavailable, match="an earlier read below /proc/driver/ hung"):
            reader.read("/proc/driver/other", 10)
    assert time.monotonic() - began < DEADLINE_S + 2


def test_another_driver_is_still_read(reader: PatientReader) -> None:
    with pytest.raises(Unavailable):
        reader.read("/proc/driver/sleeps", 10)
    assert reader.read("/sys/devices/x/net/eth0/mtu", 4) == b"/sys"


def test_a_reader_that_dies_is_told_as_hung(reader: PatientReader) -> None:
    with pytest.raises(Unavailable) as caught:
        reader.read("/proc/driver/dies", 10)
    assert caught.value.kind == "hung"
    assert caught.value.reason == "/proc/driver/dies: the process that read it was killed"
    with pytest.raises(Unavailable, match="an earlier read below /proc/driver/ hung"):
        reader.read("/proc/driver/x", 10)
    assert reader.read("/sys/devices/x/net/eth0/mtu", 4) == b"/sys"


FEW_FILES = """
import os, resource
from gpuaudit.host.errors import Unavailable
from gpuaudit.host.patient import PatientReader
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
reader = PatientReader(lambda path, limit: b"read", 5)
try:
    print(reader.read("/proc/driver/x", 9).decode())
except Unavailable as absent:
    print(absent.kind, absent.reason)
print("end")
"""


@pytest.mark.parametrize(
    ("limit", "said"),
    [(64, "read"), (5, "garbled /proc/driver/x was not asked: Too many open files")],
)
def test_few_descriptors_never_make_a_second_audit(limit: int, said: str) -> None:
    """The child must not return into the parent's code: there would be two reports."""
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES.format(limit=limit)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout == f"{said}\nend\n"


def test_without_a_process_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(Unavailable, match="was not asked: Resource temporarily") as caught:
        PatientReader(made_up, 1).read("/proc/driver/x", 1)
    assert caught.value.kind == "garbled"
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_audits_own_limit_does_not_mix_up_answers() -> None:
    slow = PatientReader(made_up, 60)
    with pytest.raises(OutOfTimeError), time_limit(0.2):
        slow.read("/proc/driver/sleeps", 10)
    assert slow.read("/proc/driver/x", 14) == b"/proc/driver/x"
    slow.close()


def test_an_abandoned_child_does_not_hold_the_pipe_of_the_audit() -> None:
    """`gpuaudit run | tee log` ends although the child sleeps on."""
    program = (
        "import os, time\n"
        "from gpuaudit.host.patient import PatientReader\n"
        "os.kill = lambda *_: None\n"  # as if the child slept uninterruptibly
        "def sleeps(path, limit): time.sleep(30)\n"
        "try:\n    PatientReader(sleeps, 0.3).read('/proc/driver/x', 1)\n"
        "except Exception as error:\n    print(error)\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "/proc/driver/x did not answer within 0.3 s\n"
    assert time.monotonic() - began < 10


def test_only_paths_that_run_driver_code_are_read_patiently() -> None:
    assert driver_of("/proc/driver/nvidia/version") == "/proc/driver/"
    assert driver_of("/sys/devices/pci0000:00/0000:00:01.0/net/eth0/speed") == "/net/"
    assert driver_of("/sys/class/infiniband/mlx5_0/ports/1/state") == "/infiniband/"
    assert driver_of("/sys/devices/pci0000:00/0000:00:01.0/config") is None
    assert driver_of("/proc/cpuinfo") is None


def test_calls_are_not_mistaken_for_files_of_a_driver() -> None:
    assert driver_of("@ethtool eth0") == driver_of("@ethtool eth1") == "@ethtool"
    assert driver_of("@statvfs /net/home") is None
