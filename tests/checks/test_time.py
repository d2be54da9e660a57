# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge
from machines import machine

from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.clock import HIDDEN, ClockSource, KernelClock, TimeService
from gpuaudit.host import NotApplicable

IMAGE = Absent("unsupported", "an image has no running kernel")


def source(current: str) -> ClockSource:
    return ClockSource(current=current, available=("tsc", "hpet"))


@pytest.mark.parametrize(
    ("current", "hypervisor", "verdict"),
    [
        ("tsc", "", "pass"),
        ("arch_sys_counter", "", "pass"),
        ("hpet", "", "fail"),
        ("acpi_pm", "", "fail"),
        ("kvm-clock", "", "fail"),
        ("kvm-clock", "kvm", "pass"),
        ("hyperv_clocksource_tsc_page", "microsoft", "pass"),
        ("acpi_pm", "kvm", "warn"),
        ("hpet", None, "warn"),
    ],
)
def test_clock_source(current: str, hypervisor: str | None, verdict: str) -> None:
    (finding,) = judge("time/time-clock-source", source(current), machine(hypervisor))
    assert finding.verdict.value == verdict


def test_a_slow_source_names_the_fast_one_and_the_price() -> None:
    (finding,) = judge("time/time-clock-source", source("hpet"), machine())
    assert finding.message == "the clock is hpet; tsc is available"
    assert "1.2 us" in (finding.cost or "")


@pytest.mark.parametrize(
    ("running", "corrected", "hypervisor", "verdict"),
    [
        (("chronyd",), None, "", "pass"),
        ((), False, "", "fail"),
        ((), True, "", "warn"),
        ((), None, "", "warn"),
        ((), False, "kvm", "warn"),
        ((), False, None, "warn"),
        (HIDDEN, None, "", "notapplicable"),
        (Absent("denied", "hidden: needs root"), None, "", "unknown"),
    ],
)
def test_running(
    running: tuple[str, ...] | Absent,
    corrected: bool | None,
    hypervisor: str | None,
    verdict: str,
) -> None:
    service = TimeService(running=running, systemd=True, corrected=corrected)
    (finding,) = judge("time/time-service-running", service, machine(hypervisor))
    assert finding.verdict.value == verdict


@pytest.mark.parametrize(
    ("max_error_us", "uptime_s", "hypervisor", "verdict"),
    [
        (48_000, 1e6, "", "pass"),
        (15_999_999, 1e6, "", "pass"),
        (16_000_000, 1e6, "", "fail"),
        (16_000_000, None, "", "fail"),
        (16_000_000, 899.0, "", "warn"),
        (16_000_000, 901.0, "", "fail"),
        (16_000_000, 1e6, "kvm", "warn"),
    ],
)
def test_synchronised(
    max_error_us: int, uptime_s: float | None, hypervisor: str, verdict: str
) -> None:
    clock = KernelClock(max_error_us=max_error_us, uptime_s=uptime_s)
    (finding,) = judge("time/time-synchronised", clock, machine(hypervisor))
    assert finding.verdict.value == verdict


@pytest.mark.parametrize(
    ("units", "systemd", "verdict"),
    [
        ({"chrony.service", "ssh.service"}, True, "pass"),
        ({"ptp4l@ens1f0.service"}, True, "pass"),
        ({"chrony.timer", "chrony-wait.service"}, True, "warn"),
        (set(), None, "warn"),
        ({"systemd-timesyncd.service"}, None, "pass"),
    ],
)
def test_at_boot(units: set[str], systemd: bool | None, verdict: str) -> None:
    boot = BootUnits(enabled=frozenset(units), running=IMAGE)
    service = TimeService(running=IMAGE if systemd is None else (), systemd=systemd)
    (finding,) = judge("time/time-service-enabled", boot, service)
    assert finding.verdict.value == verdict


def test_without_systemd_nothing_is_said_of_the_next_boot() -> None:
    boot = BootUnits(enabled=frozenset(), running=IMAGE)
    with pytest.raises(NotApplicable, match="systemd does not run"):
        judge("time/time-service-enabled", boot, TimeService(running=(), systemd=False))
