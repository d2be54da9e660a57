# SPDX-License-Identifier: Apache-2.0
"""Bare metal or guest, and of which hypervisor."""

from pathlib import Path

import pytest
from trees import make_host

from gpuaudit.facts.node import CLOCK_SOURCES, hypervisor_of, machine

BARE = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme avx512f\n"
GUEST = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme hypervisor avx512f\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nFeatures\t: fp asimd\n"


@pytest.mark.parametrize(
    ("vendor", "product", "cpuinfo", "clocks", "expected"),
    [
        ("Supermicro", "SYS-821GE-TNHR", BARE, "tsc hpet acpi_pm", ""),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", GUEST, "kvm-clock tsc", "kvm"),
        ("Amazon EC2", "p5.48xlarge", GUEST, "kvm-clock tsc", "amazon"),
        ("Amazon EC2", "p5.metal", ARM, "arch_sys_counter", ""),
        ("Amazon EC2", "g5g.16xlarge", ARM, "arch_sys_counter", "amazon"),
        ("Microsoft Corporation", "Virtual Machine", GUEST, "hyperv_clocksource", "microsoft"),
        (None, None, GUEST, "tsc kvm-clock", "kvm"),  # Firecracker has no DMI tables
        (None, None, GUEST, "hyperv_clocksource_tsc_page acpi_pm", "microsoft"),
        (None, None, GUEST, "xen tsc", "xen"),
        (None, None, GUEST, "tsc", "unknown hypervisor"),
        (None, None, BARE, "kvm-clock tsc", ""),  # the flag decides
        ("QEMU", "Standard PC", BARE, "tsc", ""),
        (None, None, ARM, "arch_sys_counter", None),
        (None, None, "", "", None),
        ("NVIDIA", "DGX GB200", ARM, "arch_sys_counter", ""),
    ],
)
def test_hypervisor(
    vendor: str | None, product: str | None, cpuinfo: str, clocks: str, expected: str | None
) -> None:
    assert hypervisor_of(vendor, product, cpuinfo, clocks=clocks) == expected


def test_a_machine_without_dmi_is_named_by_its_clock(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/proc/cpuinfo": GUEST, CLOCK_SOURCES: "tsc kvm-clock \n"})
    found = machine(host)
    assert (found.hypervisor, found.is_vm, found.vendor) == ("kvm", True, None)
