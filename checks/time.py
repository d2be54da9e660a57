# SPDX-License-Identifier: Apache-2.0
"""Time: the clock source, and whether something keeps the clock right."""

from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    counted,
    fails,
    for_absent,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.clock import ClockSource, KernelClock, TimeService, at_boot
from gpuaudit.facts.node import Machine

# Red Hat's reference guide: 10 million readings take 0.57 s (tsc), 12.3 s (hpet), 25.5 s (acpi_pm).
SLOW_COST = "each reading of the time takes 1.2 us (hpet) or 2.6 us (acpi_pm) instead of 0.06 us"
MINUTES_S = 60
KEEP_TIME = "logs of nodes cannot be lined up, certificates and tickets are refused"


class TimeExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the clock."""

    clock_sources: tuple[str, ...]
    guest_clock_sources: tuple[str, ...]
    settle_minutes: Annotated[int, msgspec.Meta(ge=0, le=1440)]


@check("time-clock-source", severity=Severity.MEDIUM)
def clock_source(source: ClockSource, machine: Machine, want: TimeExpectations) -> Finding:
    """The clock is read from the CPU, without a system call.

    ## Why it matters
    NCCL, CUDA and profilers read the time again and again. From the CPU's counter that takes 60 ns
    in user space; hpet and acpi_pm are registers of a slow device, 20 and 45 times as slow.

    ## Evidence
    /sys/devices/system/clocksource/clocksource0/{current,available}_clocksource.

    ## How it is judged
    The current source is one of `time.clock_sources`, in a guest also of
    `time.guest_clock_sources`. Another one fails on bare metal and warns elsewhere.

    ## Exceptions
    Guests have sources of their hypervisor, which the vDSO reads as fast. Grace and other Arm CPUs
    have arch_sys_counter. In a container this is the host's clock.

    ## What to do
    Run `dmesg | grep -i tsc`: the kernel says there why it left the tsc. Update the BIOS; take
    `clocksource=`, `notsc` and `tsc=unstable` off the kernel command line.

    ## References
    - https://docs.kernel.org/timers/timekeeping.html
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://docs.redhat.com/en/documentation/red_hat_enterprise_linux_for_real_time/7/html/reference_guide/chap-timestamping
    """
    guest = machine.is_vm is not False
    accepted = want.clock_sources + (want.guest_clock_sources if guest else ())
    if source.current in accepted:
        return passes("clock source", source.current, expected=accepted)
    others = ", ".join(name for name in source.available if name in accepted)
    message = f"the clock is {source.current}; {others or 'no faster one'} is available"
    answer = warns if guest else fails
    return answer("clock source", message, source.current, expected=accepted, cost=SLOW_COST)


@check("time-service-running", severity=Severity.MEDIUM)
def service_running(service: TimeService, machine: Machine) -> Finding:
    """A time service runs.

    ## Why it matters
    A clock that nobody corrects drifts by a second in a day. Logs of several nodes then cannot be
    lined up, and Kerberos, munge (Slurm) and TLS refuse what seems to come from the future.

    ## Evidence
    The process table: chronyd, systemd-timesyncd, ntpd, ptp4l, phc2sys and their like; where none
    runs also adjtimex(2).

    ## How it is judged
    One of them runs. None warns, and fails on bare metal where the kernel says too that nothing
    corrects its clock.

    ## Exceptions
    Only warns in a guest: VMware tools and Hyper-V's driver set the time of guests without these.
    Not applicable in a container, whose host keeps the time.

    ## What to do
    Run `systemctl enable --now chrony` (chronyd on Red Hat), or `timedatectl set-ntp true` for
    systemd-timesyncd.

    ## References
    - https://chrony-project.org/doc/latest/chronyd.html
    - https://www.freedesktop.org/software/systemd/man/latest/systemd-timesyncd.service.html
    - https://github.com/dun/munge/wiki/Installation-Guide
    """
    of = "time service"
    if isinstance(service.running, Absent):
        return for_absent(service.running, of)
    if service.running:
        return passes(of, ", ".join(service.running))
    drifts = machine.is_vm is False and service.corrected is False
    message = "no time service that is known runs"
    if service.corrected:
        message += ", though the clock was corrected in the last hours"
    return (fails if drifts else warns)(of, message, "none", cost=KEEP_TIME)


@check("time-synchronised", severity=Severity.MEDIUM)
def synchronised(clock: KernelClock, machine: Machine, want: TimeExpectations) -> Finding:
    """The kernel holds its clock to be right.

    ## Why it matters
    A time service that runs may reach no server. Nodes whose clocks differ by seconds give logs
    and profiles that cannot be compared, and munge refuses credentials five minutes off.

    ## Evidence
    adjtimex(2) without a mode, which changes nothing: the greatest error the kernel reckons with.
    It grows by 500 ppm from one correction to the next.

    ## How it is judged
    The error is below 16 s, where the kernel gives the clock up (nine hours without a correction).
    Otherwise it fails on bare metal, and warns for `time.settle_minutes` after boot.

    ## Exceptions
    Warns in guests, whose hypervisor may set their time without telling the kernel. Which server
    is asked, and how far off it is, is not visible here. In a container this is the host's clock.

    ## What to do
    Run `chronyc sources` or `timedatectl timesync-status` and see which server answers; open UDP
    port 123 to it or name another one.

    ## References
    - https://man7.org/linux/man-pages/man2/adjtimex.2.html
    - https://github.com/torvalds/linux/blob/master/kernel/time/ntp.c
    """
    of, seen = "kernel clock", f"error of at most {clock.max_error_us / 1e6:.3f} s"
    if clock.synchronised:
        return passes(of, seen)
    fresh = clock.uptime_s is not None and clock.uptime_s < want.settle_minutes * MINUTES_S
    message = "nothing corrected the clock for hours, or ever"
    if fresh:
        minutes = counted(round((clock.uptime_s or 0) / MINUTES_S), "minute")
        message = f"not yet corrected, {minutes} after boot"
    answer = warns if fresh or machine.is_vm is not False else fails
    return answer(of, message, "not synchronised", cost=KEEP_TIME)


@check("time-service-enabled", severity=Severity.LOW)
def service_enabled(units: BootUnits, service: TimeService) -> Finding:
    """A time service starts at the next boot.

    ## Why it matters
    A service that was started by hand is gone after the next boot, and the clock drifts unseen.

    ## Evidence
    The .wants and .requires folders of the targets of a boot in /etc and /usr/lib, masks in /etc.

    ## How it is judged
    One of the units chrony, systemd-timesyncd, ntp, ptp4l and their like is pulled in and not
    masked. None warns.

    ## Exceptions
    Not applicable in a container, whose files say nothing of its node, and without systemd. Units
    that cloud-init or a configuration manager enables after the first boot are not in an image.

    ## What to do
    Run `systemctl enable chrony` (chronyd on Red Hat).

    ## References
    - https://www.freedesktop.org/software/systemd/man/latest/systemctl.html
    - https://chrony-project.org/faq.html
    """
    if service.systemd is False:
        raise NotApplicable("systemd does not run this machine")
    of, found = "time service at boot", at_boot(units)
    if found:
        return passes(of, ", ".join(found))
    return warns(of, "no time service starts at boot", "none", cost=KEEP_TIME)
