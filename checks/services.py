# SPDX-License-Identifier: Apache-2.0
"""Services that cost a GPU node something, and updates that come by themselves."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.updates import AutomaticUpdates


class ServicesExpectations(Expectations, frozen=True, kw_only=True):
    """Units that should neither run nor start at boot, with the reason, and updates."""

    costly: dict[str, str]
    driver_updates: Literal["held", "any"]


@check("services-costly", severity=Severity.LOW)
def costly(units: BootUnits, want: ServicesExpectations) -> Iterator[Finding]:
    """No background service takes time from jobs or changes settings.

    ## Why it matters
    Every rank waits for the slowest one. A service that wakes up on one node of a thousand, clocks
    its CPUs down or puts a screen on its GPUs holds up the step of all.

    ## Evidence
    Units that the targets of a boot want ({/etc,/usr/lib}/systemd/system/*.wants), masks, and the
    control groups of running services (/sys/fs/cgroup/system.slice).

    ## How it is judged
    Warns for each unit of `services.costly` that starts at the next boot or runs now. The policy
    names the units, each with its reason.

    ## Exceptions
    Units that D-Bus, a device or a socket starts are seen only while they run. Not applicable in
    containers and without systemd. A workstation that needs its screen drops
    display-manager.service from the policy.

    ## What to do
    Run `systemctl disable --now UNIT`, or `systemctl mask UNIT` where something else would start it
    again, and leave the package out of the image.

    ## References
    - https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html
    """
    running = units.running if isinstance(units.running, frozenset) else frozenset()
    found = {name: state_of(name, units.enabled, running) for name in want.costly}
    hits = {name: state for name, state in found.items() if state}
    for name, state in hits.items():
        yield warns(
            name, f"{state}: {want.costly[name]}", state, expected="neither runs nor starts"
        )
    if isinstance(units.running, Absent) and units.running.kind != "unsupported":
        yield unknown("running services", units.running.reason)
    elif not hits:
        yield passes("services", "none of the policy's list", evidence=tuple(want.costly))


def state_of(name: str, enabled: frozenset[str], running: frozenset[str]) -> str:
    """What is to be seen of a unit; "" for nothing."""
    words = ("runs",) * (name in running) + ("starts at boot",) * (name in enabled)
    return " and ".join(words)


@check("services-driver-updates", severity=Severity.MEDIUM)
def driver_updates(updates: AutomaticUpdates, want: ServicesExpectations) -> Finding:
    """No automatic update replaces the NVIDIA driver under a running job.

    ## Why it matters
    When the packages change while the old module is loaded, NVML and new CUDA programs stop with a
    version mismatch: monitoring goes blind and jobs do not start until the node is rebooted.

    ## Evidence
    apt-daily-upgrade.timer, APT::Periodic::Unattended-Upgrade, its Package-Blacklist, holds in
    /var/lib/dpkg/status, pins in apt's preferences; dnf-automatic with version locks and exclude
    lines.

    ## How it is judged
    Warns when updates install themselves and nothing holds the driver's packages back: no hold, no
    entry in the blacklist, no pin of a version, no lock.

    ## Exceptions
    A driver that is no package (NVIDIA's installer, the GPU Operator) cannot be replaced. Of RPM
    systems only dnf-automatic is known; which repository a package came from is not asked, so an
    update may not exist. Not applicable in containers and without a driver.

    ## What to do
    Run `apt-mark hold` for the driver's packages, or add "nvidia" and "libnvidia" to
    Unattended-Upgrade::Package-Blacklist; on RHEL `dnf versionlock add` them.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/version-locking.html
    - https://wiki.debian.org/UnattendedUpgrades
    """
    if want.driver_updates == "any":
        raise NotApplicable("the policy accepts automatic updates of the driver")
    of = "driver packages"
    if updates.by is None:
        return passes(of, "no automatic updates")
    if updates.by == "unattended-upgrades" and not updates.packages:
        return passes(of, "the driver is no Debian package", evidence=(updates.by,))
    if updates.kept_by:
        return passes(of, f"held by {updates.kept_by}", evidence=(updates.by,))
    message = f"{updates.by} may replace the driver while jobs run: nothing holds it back"
    return warns(of, message, "not held", expected="held", evidence=updates.packages[:4])
