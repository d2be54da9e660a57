# SPDX-License-Identifier: Apache-2.0
"""Ways to break a FakeNode. Each changes every place where the real fault would show."""

import json
import posixpath
from typing import Any

from fakenode import FakeNode, Link
from fakenode.pci import SPEEDS, path_of
from fakenode.registers import ACS_CONTROL, LNKSTA, patched, status_word
from fakenode.registers import Link as Lanes
from gpuaudit.facts.counters import SCHEMA, STATE_FILE

GPU_IS_LOST = {"e": 15, "t": "GPU is lost"}


def write(node: FakeNode, path: str, text: str) -> None:
    """Replace a file that is there, wherever links lead."""
    where = canonical(node, path)
    if where not in node.files:
        raise KeyError(f"{path}: the healthy node has no such file")
    node.files[where] = f"{text}\n"


def text(node: FakeNode, path: str) -> str:
    """The text of a file."""
    content = node.files[canonical(node, path)]
    assert isinstance(content, str)
    return content


def canonical(node: FakeNode, path: str) -> str:
    """The path with the links of the PCI and class folders followed."""
    done = ""
    for part in path.split("/")[1:]:
        done = f"{done}/{part}"
        target = node.files.get(done)
        if isinstance(target, Link):
            done = posixpath.normpath(posixpath.join(posixpath.dirname(done), target.target))
            done = canonical(node, done)
    return done


def remove(node: FakeNode, *paths: str) -> None:
    """Take away files, and folders with all in them."""
    for path in paths:
        gone = [p for p in node.files if p == path or p.startswith(f"{path}/")]
        if not gone:
            raise KeyError(f"{path}: the healthy node has no such file")
        for one in gone:
            del node.files[one]


def attribute(node: FakeNode, address: str, name: str, value: str) -> None:
    """An attribute of a PCI function in sysfs."""
    write(node, f"{path_of(address)}/{name}", value)


def retrain(node: FakeNode, address: str, gen: int, width: int) -> None:
    """Both ends of the link above a function now run like this."""
    one_end(node, address, gen, width)
    one_end(node, path_of(address).split("/")[-2], gen, width)


def one_end(node: FakeNode, address: str, gen: int, width: int) -> None:
    """One end of a link says that it runs like this."""
    attribute(node, address, "current_link_speed", f"{SPEEDS[gen]} GT/s PCIe")
    attribute(node, address, "current_link_width", str(width))
    register(node, address, LNKSTA, status_word(Lanes(gen, width)))


def register(node: FakeNode, address: str, offset: int, word: int) -> None:
    """A 16-bit word of config space."""
    space = node.files[f"{path_of(address)}/config"]
    assert isinstance(space, bytes)
    node.files[f"{path_of(address)}/config"] = patched(space, offset, word)


def acs(node: FakeNode, address: str, control: int) -> None:
    """The ACS control word of a port."""
    register(node, address, ACS_CONTROL, control)


def cut_config(node: FakeNode) -> None:
    """Recorded without root: 64 bytes of every config space."""
    node.euid = 1000
    for path, content in node.files.items():
        if path.endswith("/config") and isinstance(content, bytes):
            node.files[path] = content[:64]


def answer(node: FakeNode, gpu: int, call: str, value: Any) -> None:
    """What one GPU answers to one call."""
    key = f"nvmlDeviceGet{call}"
    assert key in node.nvml["devices"][gpu], key
    node.nvml["devices"][gpu][key] = {"v": value}


def busy(node: FakeNode, gpu: int, *, reasons: int, clock_mhz: int, power_mw: int) -> None:
    """One GPU works, evenly, while it is asked."""
    again = ("", "#2")
    for call in ("PowerUsage", "FieldValues(186)"):
        for suffix in again:
            answer(node, gpu, f"{call}{suffix}", power_mw)
    for suffix in again:
        answer(node, gpu, f"CurrentClocksEventReasons{suffix}", reasons)
        answer(node, gpu, f"ClockInfo(1){suffix}", clock_mhz)
    answer(node, gpu, "ClockInfo(0)", clock_mhz)
    answer(node, gpu, "UtilizationRates", {"gpu": 99, "memory": 22})
    answer(node, gpu, "ComputeRunningProcesses", [4242])


def everywhere(node: FakeNode, call: str, value: Any) -> None:
    """What every GPU answers to one call."""
    for gpu in range(len(node.nvml["devices"])):
        answer(node, gpu, call, value)


def error(node: FakeNode, gpu: int, call: str, code: int) -> None:
    """One call on one GPU fails."""
    node.nvml["devices"][gpu][f"nvmlDeviceGet{call}"] = {"e": code}


def lose_gpu(node: FakeNode, gpu: int) -> None:
    """It fell off the bus: NVML says so to every question."""
    for call in node.nvml["devices"][gpu]:
        node.nvml["devices"][gpu][call] = dict(GPU_IS_LOST)


def no_nvml(node: FakeNode, code: int) -> None:
    """nvmlInit fails, and nothing else is asked."""
    version = node.nvml["system"]["nvmlSystemGetNVMLVersion"]
    node.nvml["init"] = {"e": code}
    node.nvml["devices"] = []
    node.nvml["system"] = {} if code == 12 else {"nvmlSystemGetNVMLVersion": version}


def forget_gpu(node: FakeNode, gpu: int) -> None:
    """NVML does not list a GPU that is on the bus."""
    del node.nvml["devices"][gpu]
    node.nvml["system"]["nvmlDeviceGetCount_v2"] = {"v": len(node.nvml["devices"])}
    for index, device in enumerate(node.nvml["devices"]):
        for call in [call for call in device if "P2PStatus" in call]:
            del device[call]
        for peer in range(index + 1, len(node.nvml["devices"])):
            device[f"nvmlDeviceGetP2PStatus({peer},2)"] = {"v": 0}


def start(node: FakeNode, pid: int, name: str, limits: str) -> None:
    """A service runs that the healthy node does not have."""
    node.processes.append({"pid": pid, "name": name, "state": "sleeping", "parent": 1})
    node.files |= {f"/proc/{pid}/comm": f"{name}\n", f"/proc/{pid}/limits": limits}


def stop(node: FakeNode, pid: int) -> None:
    """A service does not run: no process, no unit state, no pid file."""
    node.processes = [one for one in node.processes if one["pid"] != pid]
    remove(node, f"/proc/{pid}")


def limit(node: FakeNode, pid: int | str, row: str, value: str) -> None:
    """A row of /proc/<pid>/limits."""
    path = f"/proc/{pid}/limits"
    lines = text(node, path).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(row))
    lines[place] = f"{row:<26}{value:<21}{value:<21}{lines[place][68:]}"
    node.files[path] = "\n".join(lines) + "\n"


def sysctl(node: FakeNode, name: str, value: str) -> None:
    """A running sysctl that the configuration sets otherwise."""
    write(node, f"/proc/sys/{name.replace('.', '/')}", value)


def read_earlier(node: FakeNode, totals: dict[str, dict[str, int]], seconds: float = 3600) -> None:
    """What the state file of the last nightly run holds: subject -> name -> total."""
    reading = {
        "schema": SCHEMA,
        "boot_id": text(node, "/proc/sys/kernel/random/boot_id").strip(),
        "uptime_s": float(text(node, "/proc/uptime").split()[0]) - seconds,
        "written_at": "2026-01-01T00:00:00+00:00",
        "counters": totals,
    }
    node.files[STATE_FILE] = json.dumps(reading)


def overlay_root(node: FakeNode) -> None:
    """The root of a container that shares the host's processes (docker run --pid=host)."""
    mounts = str(node.files["/proc/self/mountinfo"])
    node.files["/proc/self/mountinfo"] = mounts.replace("ext4 /dev/md0", "overlay overlay")
