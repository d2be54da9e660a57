# SPDX-License-Identifier: Apache-2.0
"""Who may put PCI devices and links to sleep, from sysfs.

power/control and power/runtime_status: Linux Documentation/ABI/testing/sysfs-devices-power. The
ports above need no reading: a parent is not suspended while a child is active
(Linux Documentation/power/runtime_pm.rst, section 4).
/sys/module/pcie_aspm/parameters/policy: Linux drivers/pci/pcie/aspm.c.
"""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pcilink import reading
from gpuaudit.facts.pciways import movers
from gpuaudit.host import Host, NotApplicable, Unavailable

POLICY = "/sys/module/pcie_aspm/parameters/policy"
DRIVER_POWER = "/proc/driver/nvidia/gpus/{}/power"


class Sleep(NamedTuple):
    """control: on or auto. The other two are read only where it is auto."""

    control: str | Absent
    status: str | Absent
    rtd3: str | Absent
    """What the NVIDIA driver says of Runtime D3, for example 'Disabled by default'."""


NOT_ASKED = Absent("unsupported", "not asked")


class PciPower(Fact, frozen=True, kw_only=True):
    """power/{control,runtime_status} of GPUs, NICs with RDMA and NVMe drives in use."""

    by_address: dict[str, Sleep]


class AspmPolicy(Fact, frozen=True, kw_only=True):
    """The policy in brackets; `now` is None in an image, which runs no kernel."""

    now: str | Absent | None


@probe
def pci_power(host: Host, devices: PciDevices) -> PciPower:
    """Read how each device in use may be put to sleep."""
    return PciPower(by_address={d.address: sleep_of(host, d) for d in movers(devices)})


def sleep_of(host: Host, device: PciDevice) -> Sleep:
    """Nothing more is asked of a device that is kept awake."""
    control = reading(host, f"{device.path}/power/control")
    if control == "on" or isinstance(control, Absent):
        return Sleep(control, NOT_ASKED, NOT_ASKED)
    status = reading(host, f"{device.path}/power/runtime_status")
    return Sleep(control, status, rtd3(host, device) if device.role == "gpu" else NOT_ASKED)


def rtd3(host: Host, device: PciDevice) -> str | Absent:
    """The line `Runtime D3 status:` of the driver's file."""
    text = reading(host, DRIVER_POWER.format(device.address))
    if isinstance(text, Absent):
        return text
    pairs = (line.partition(":") for line in text.splitlines())
    found = (value.strip() for key, _, value in pairs if key.strip() == "Runtime D3 status")
    return next(found, Absent("failed", "the driver's power file has no Runtime D3 status"))


@probe
def aspm_policy(host: Host) -> AspmPolicy:
    """Read `[default] performance powersave powersupersave`."""
    try:
        text = host.read(POLICY)
    except NotApplicable:
        return AspmPolicy(now=None)
    except Unavailable as absent:
        if absent.kind == "missing":
            none = Absent("unsupported", "this kernel has no control over link power states (ASPM)")
            return AspmPolicy(now=none)
        return AspmPolicy(now=Absent("missing", absent.reason))
    chosen = text.partition("[")[2].partition("]")[0]
    return AspmPolicy(now=chosen or Absent("failed", f"{POLICY} reads {text[:40]!r}"))
