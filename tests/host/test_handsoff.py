# SPDX-License-Identifier: Apache-2.0
"""Asking NVML changes nothing: the driver is not loaded, and /dev stays as it is."""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakenvml import build_shim, healthy_h100, shim_env, write_document
from system import lacking, need
from trees import make_host

from gpuaudit.host import Host, Unavailable
from gpuaudit.host.handsoff import FORBIDDEN, filter_program
from gpuaudit.host.unloaded import certainly_unloaded

HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
LEGACY = {"rename", "mkdir", "rmdir", "link", "unlink", "symlink", "chmod", "chown", "lchown"}
ALLOW, REFUSE_EPERM = 0x7FFF0000, 0x00050001
ASK = """
import sys
from gpuaudit.host import Host
answers = Host.live(sys.argv[1]).nvml()
print(answers.init.e if not answers.init.ok else answers.system["nvmlDeviceGetCount_v2"].v)
"""


@pytest.mark.parametrize("machine", FORBIDDEN)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    if not Path(HEADERS[machine]).exists():
        if machine == "x86_64" != os.uname().machine:
            pytest.skip("these headers come with an x86_64 machine")
        lacking(f"needs {HEADERS[machine]} (package linux-libc-dev)")
    text = Path(HEADERS[machine]).read_text()
    numbers = {
        name: int(number)
        for name, number in re.findall(r"^#define __NR(?:3264)?_(\w+) (\d+)$", text, re.MULTILINE)
    }
    known = {name: number for name, number in FORBIDDEN[machine][1].items() if name in numbers}
    assert known == {name: numbers[name] for name in known}
    assert set(FORBIDDEN[machine][1]) - set(known) <= {"fchmodat2"}  # Linux 6.6


def test_both_architectures_forbid_the_same() -> None:
    names = {machine: set(calls) for machine, (_, calls) in FORBIDDEN.items()}
    assert names["x86_64"] - names["aarch64"] == {*LEGACY, "mknod"}
    assert names["aarch64"] <= names["x86_64"]


def verdict(program: bytes, architecture: int, number: int) -> int:
    """What the kernel's interpreter answers for one system call."""
    steps = list(struct.iter_unpack("=HBBI", program))
    data = {0: number, 4: architecture}
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, k = steps[at]
        at += 1
        if code == 0x06:
            return int(k)
        if code == 0x20:
            accumulator = data[k]
        else:
            assert code == 0x15
            at += if_true if accumulator == k else if_false


@pytest.mark.parametrize("machine", FORBIDDEN)
def test_the_filter_refuses_those_calls_and_no_other(machine: str) -> None:
    architecture, calls = FORBIDDEN[machine]
    program = filter_program(architecture, tuple(calls.values()))
    refused = {n for n in range(600) if verdict(program, architecture, n) == REFUSE_EPERM}
    assert refused == set(calls.values())
    assert all(verdict(program, architecture, n) == ALLOW for n in set(range(600)) - refused)
    assert {verdict(program, 0x40000003, n) for n in range(600)} == {ALLOW}  # i386


def test_a_process_under_the_filter(tmp_path: Path) -> None:
    guarded()
    (tmp_path / "there").write_text("text")
    program = """
import json, os, sys
from gpuaudit.host.handsoff import hands_off
tries = {
    "chmod": lambda: os.chmod("there", 0o777), "mkdir": lambda: os.mkdir("new"),
    "chown": lambda: os.chown("there", os.getuid(), os.getgid()),
    "mknod": lambda: os.mknod("node"), "unlink": lambda: os.unlink("there"),
    "rename": lambda: os.rename("there", "gone"), "symlink": lambda: os.symlink("there", "link"),
    "link": lambda: os.link("there", "link"), "execve": lambda: os.execv("/bin/true", ["true"]),
    "read": lambda: open("there").read(),
}
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return error.errno
done = hands_off()
print(json.dumps({"done": done, **{name: outcome(one) for name, one in tries.items()}}))
"""
    found = json.loads(run([sys.executable, "-c", program], tmp_path))
    assert found.pop("done") is True
    assert found.pop("read") is None
    assert found == dict.fromkeys(found, 1)  # EPERM
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]


def guarded() -> None:
    if os.uname().machine not in FORBIDDEN:
        lacking("needs x86_64 or aarch64")


def run(argv: list[str], where: Path, **env: str) -> str:
    done = subprocess.run(
        argv,
        cwd=where,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gcc", "gcc")
    return build_shim(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev whose nvidia0 only root may open."""
    folder = tmp_path / "dev"
    folder.mkdir()
    (folder / "nvidia0").touch(0o600)
    (folder / "link").symlink_to("nvidia0")
    return folder


def asked(library: Path, root: Path, dev: Path) -> str:
    document = write_document(dev.parent / "nvml.json", healthy_h100(2))
    env = shim_env(library, document) | {"GPUAUDIT_FAKE_NVML_MEDDLES": str(dev)}
    return run([sys.executable, "-c", ASK, str(root)], dev.parent, **env).strip()


def state(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.iterdir()):
        where = os.readlink(path) if path.is_symlink() else oct(path.stat().st_mode)
        yield path.name, where


def live_root(where: Path, *modules: str) -> Path:
    root = where / "root"
    for name in modules:
        (root / "sys/module" / name).mkdir(parents=True)
    (root / "proc").mkdir(parents=True, exist_ok=True)
    return root


def test_what_the_library_does_on_its_own(library: Path, dev: Path) -> None:
    """Without this the next test could pass for nothing."""
    program = "import pynvml; pynvml.nvmlInit()"
    document = write_document(dev.parent / "nvml.json", healthy_h100(1))
    env = shim_env(library, document) | {"GPUAUDIT_FAKE_NVML_MEDDLES": str(dev)}
    run([sys.executable, "-c", program], dev.parent, **env)
    found = dict(state(dev))
    assert found["nvidia0"] == "0o100666"
    assert found["link"] == "nvidia1"
    assert {"nvidia-caps", "nvidia1", "modprobed", "opened"} <= set(found)


def test_asking_leaves_the_device_files_alone(library: Path, dev: Path, tmp_path: Path) -> None:
    guarded()
    before = dict(state(dev))
    assert asked(library, live_root(tmp_path, "nvidia"), dev) == "2"
    after = dict(state(dev))
    assert after.pop("opened")
    assert after == before


def test_a_driver_that_is_not_loaded_is_not_opened(
    library: Path, dev: Path, tmp_path: Path
) -> None:
    assert asked(library, live_root(tmp_path, "ext4", "mlx5_core"), dev) == "9"
    assert not (dev / "opened").exists()


def test_without_the_library_that_is_said_instead(dev: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "libnvidia-ml.so.1").write_text("no library")
    assert asked(empty, live_root(tmp_path, "ext4"), dev) == "12"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/module/ext4/refcnt": "1"}, True),
        ({"/sys/module/ext4/refcnt": "1", "/sys/module/nvidia/version": "580.1"}, False),
        ({"/sys/module/ext4/refcnt": "1", "/proc/driver/nvidia/version": "NVRM"}, False),
        ({"/sys/module/ext4/refcnt": "1", "/dev/dxg": ""}, False),  # WSL
        ({"/sys/module/ext4/refcnt": "1", "/sys/module/nvgpu/refcnt": "1"}, False),  # Jetson
        ({"/proc/version": "Linux"}, None),  # gVisor shows no modules
    ],
)
def test_when_the_driver_is_certainly_not_loaded(
    tmp_path: Path, files: dict[str, str | bytes | None], expected: bool | None
) -> None:
    host: Host = make_host(tmp_path, files, source="live")
    if expected is None:
        with pytest.raises(Unavailable):
            certainly_unloaded(host)
    else:
        assert certainly_unloaded(host) is expected
