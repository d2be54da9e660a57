# SPDX-License-Identifier: Apache-2.0
"""Clock, memory modules and their errors, load, heat, and what the caller may use."""

import json
from typing import Any

from smbios import TABLE, module, table
from trees import Link as To

from fakenode.commands import command
from fakenode.cpus import CORES, CPU, CPUS, NODES
from fakenode.system import STATUS
from fakenode.values import Files

CLOCK = "/sys/devices/system/clocksource/clocksource0"
EDAC = "/sys/devices/system/edac/mc"
THROTTLED = "thermal_throttle/package_throttle_total_time_ms"
CHRONY = "/etc/systemd/system/multi-user.target.wants/chrony.service"
CONTROLLERS = 8
CHRONYD = 1730


def hoststate_files() -> Files:
    """Everything but what the CPU and system files have already."""
    return clock_files() | memory_files() | load_files() | caller_files()


def clock_files() -> Files:
    """The tsc, and chrony at the next boot."""
    unit = "/usr/lib/systemd/system/chrony.service"
    return {
        f"{CLOCK}/current_clocksource": "tsc\n",
        f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm \n",
        unit: "[Unit]\nDescription=chrony\n[Service]\nExecStart=/usr/sbin/chronyd\n",
        CHRONY: To(f"../../../..{unit}"),
    }


def modules() -> list[bytes]:
    """Two modules on each of eight channels of both sockets, 2 TiB in all."""
    places = [(s, c, n) for s in NODES for c in "ABCDEFGH" for n in (1, 2)]
    return [
        module(f"P{s + 1}-DIMM{c}{n}", f"P{s}_Node0_Channel{ord(c) - 65}_Dimm{n - 1}")
        for s, c, n in places
    ]


def memory_files() -> Files:
    """SMBIOS, and a driver that counted no error."""
    found: Files = {TABLE: table(*modules())}
    for number in range(CONTROLLERS):
        for name in ("ce_count", "ue_count"):
            found[f"{EDAC}/mc{number}/{name}"] = "0\n"
        found[f"{EDAC}/mc{number}/dimm0/dimm_label"] = f"CPU_SrcID#{number // 4}_MC#{number % 4}\n"
        found[f"{EDAC}/mc{number}/dimm0/dimm_ce_count"] = "0\n"
        found[f"{EDAC}/mc{number}/dimm0/dimm_ue_count"] = "0\n"
    return found


def load_files() -> Files:
    """An idle machine that was never too hot."""
    some = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    found: Files = {
        "/proc/loadavg": "1.20 0.90 0.80 1/2400 9000\n",
        **{f"/proc/pressure/{n}": some + some.replace("some", "full") for n in PRESSURES},
        "/proc/sys/kernel/hung_task_timeout_secs": "120\n",
        "/proc/sys/kernel/hung_task_warnings": "10\n",
    }
    return found | {f"{CPU}/cpu{node * CORES}/{THROTTLED}": "0\n" for node in NODES}


PRESSURES = ("cpu", "memory", "io")


def caller_files() -> Files:
    """The audit runs in a shell that nothing limits."""
    sets = f"Cpus_allowed_list:\t0-{CPUS - 1}\nMems_allowed_list:\t0-1\n"
    return {"/proc/self/status": STATUS + sets}


def hoststate_commands() -> list[dict[str, Any]]:
    """The kernel's clock, corrected a while ago."""
    return [clock(max_error_us=48_213)]


def clock(**answer: int) -> dict[str, Any]:
    """What adjtimex(2) says."""
    return command("@adjtimex", stdout=json.dumps({"status": 0x2001, **answer}))
