# SPDX-License-Identifier: Apache-2.0
"""Errors of the host's memory as the EDAC driver counts them.

Attributes: Linux Documentation/ABI/testing/sysfs-devices-edac, Documentation/admin-guide/RAS.
"""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.cpu import number_of
from gpuaudit.facts.node import Machine
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDER = "/sys/devices/system/edac/mc"
CORRECTED, UNCORRECTED = "ce-count", "ue-count"
MOST = (1 << 32) - 1
DRIVERS = {
    "GenuineIntel": "i10nm_edac (Ice Lake and later) or skx_edac",
    "AuthenticAMD": "amd64_edac",
}


class Controller(NamedTuple):
    """One memory controller. `modules`: those with errors, the worst first, by their label."""

    name: str
    corrected: int | Absent
    uncorrected: int | Absent
    modules: tuple[str, ...] = ()


class MemoryErrors(Counted, frozen=True, kw_only=True):
    """/sys/devices/system/edac/mc/mcN/{ce_count,ue_count}.

    Of a controller with errors also dimmM/{dimm_label,dimm_ce_count,dimm_ue_count}.
    """

    controllers: tuple[Controller, ...]

    def counters(self) -> Totals:
        """Both totals of each controller."""
        return {
            one.name: {
                name: value
                for name, value in ((CORRECTED, one.corrected), (UNCORRECTED, one.uncorrected))
                if isinstance(value, int)
            }
            for one in self.controllers
        }


@probe
def memory_errors(host: Host, machine: Machine) -> MemoryErrors:
    """Read the counters. Raises Unavailable with the module to load where no driver counts."""
    try:
        names = [n for n in host.list(FOLDER) if n.startswith("mc") and n[2:].isdigit()]
    except Unavailable as absent:
        if absent.kind != "missing":
            raise
        names = []
    if not names:
        if machine.is_vm:
            raise NotApplicable("a guest does not see the memory errors of its host")
        if machine.architecture == "aarch64":
            raise NotApplicable("firmware keeps the memory errors of Arm servers (Grace) to itself")
        raise Unavailable(f"no EDAC driver counts memory errors: {advice(host)}", "unsupported")
    return MemoryErrors(controllers=tuple(controller(host, name) for name in names))


def advice(host: Host) -> str:
    """Which module would count, by the vendor of the CPU."""
    cpuinfo = host.optional("/proc/cpuinfo") or ""
    known = next((module for vendor, module in DRIVERS.items() if vendor in cpuinfo), None)
    if known:
        return f"load {known}, unless the firmware keeps the errors to itself"
    return "look for them in the log of the management controller"


def controller(host: Host, name: str) -> Controller:
    """One controller, and its modules where it has errors."""
    folder = f"{FOLDER}/{name}"
    corrected = number_of(host, f"{folder}/ce_count", MOST)
    uncorrected = number_of(host, f"{folder}/ue_count", MOST)
    counted = any(isinstance(value, int) and value for value in (corrected, uncorrected))
    return Controller(name, corrected, uncorrected, modules(host, folder) if counted else ())


def modules(host: Host, folder: str) -> tuple[str, ...]:
    """Labels of the modules with errors, with their counts."""
    found: list[tuple[int, str]] = []
    for name in host.names(folder):
        if name.startswith("dimm") and name[4:].isdigit():
            errors = [
                number_of(host, f"{folder}/{name}/dimm_{kind}_count") for kind in ("ce", "ue")
            ]
            total = sum(count for count in errors if isinstance(count, int))
            label = (host.optional(f"{folder}/{name}/dimm_label") or name).strip()
            found += [(total, f"{label}: {total}")] if total else []
    return tuple(text for _, text in sorted(found, reverse=True))
