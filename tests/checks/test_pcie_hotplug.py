# SPDX-License-Identifier: Apache-2.0
"""Links that went down, by the kernel's log."""

import pytest
from judging import judge
from machines import gpu, nic, pci

from gpuaudit.check import Finding, NotApplicable, Verdict
from gpuaudit.facts.kernellog import KernelLog
from gpuaudit.facts.pci import PciDevices

CHECK = "pcie_hotplug/pcie-hotplug-events"
PORT, STORAGE_PORT, MANAGEMENT_PORT = "0000:17:00.0", "0000:59:01.0", "0000:00:1c.0"
NODE = pci(
    gpu("0000:18:00.0", parents=("0000:15:01.0", "0000:16:00.0", PORT)),
    nic("0000:5a:00.0", parents=(STORAGE_PORT,), rdma=True),
    nic("0000:02:00.0", parents=(MANAGEMENT_PORT,), rdma=False),
)
START = "[    0.000000] Linux version 6.8.0-50-generic\n"
DOWN = "pcieport {}: pciehp: Slot(12): Link Down"
OLD_DOWN = "pciehp {}:pcie204: Slot(12): Card not present"
CUT_OFF = "pcieport {}: DPC: containment event, status:0x1f01 source:0x0000"
GAVE_UP = "pcieport {}: AER: device recovery failed"


def log(
    *texts: str, at: float = 9000.0, complete: bool | None = True, now: float = 10_000.0
) -> KernelLog:
    lines = "".join(f"[{at:12.6f}] {text}\n" for text in texts)
    data = (START + lines).encode()
    return KernelLog(data=data, source="/dev/kmsg", complete=complete, span=(0.0, now))


def found(kernel: KernelLog, devices: PciDevices = NODE) -> dict[str, Finding]:
    return {f.subject: f for f in judge(CHECK, kernel, devices)}


def test_nothing_happened() -> None:
    quiet = log("pcieport 0000:17:00.0: PME: Signaling with IRQ 42", "mlx5_core: Link down")
    assert found(quiet)["kernel log"].verdict is Verdict.PASS


def test_a_short_log_in_which_nothing_happened() -> None:
    finding = found(log(complete=False))["kernel log"]
    assert finding.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("text", [DOWN, OLD_DOWN, CUT_OFF])
@pytest.mark.parametrize("port", [PORT, "0000:16:00.0", STORAGE_PORT])
def test_the_link_of_a_gpu_or_an_rdma_nic(text: str, port: str) -> None:
    finding = found(log(text.format(port)))[port]
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence == (text.format(port),)


def test_what_it_says() -> None:
    finding = found(log(DOWN.format(PORT), DOWN.format(PORT)))[PORT]
    assert finding.message == (
        'the kernel log has "Link Down", 9000 s (2.5 hours) after boot and 1 more line; '
        "below it: gpu 0000:18:00.0"
    )


@pytest.mark.parametrize("port", [MANAGEMENT_PORT, "0000:99:00.0"])
def test_other_links_only_warn(port: str) -> None:
    finding = found(log(DOWN.format(port)))[port]
    assert finding.verdict is Verdict.WARN
    assert ("nothing" in finding.message) is (port != MANAGEMENT_PORT)


def test_a_recovery_that_failed_warns() -> None:
    finding = found(log(GAVE_UP.format(PORT)))[PORT]
    assert finding.verdict is Verdict.WARN
    assert finding.message.startswith('the kernel log has "device recovery failed", ')


def test_what_is_longer_ago_only_warns() -> None:
    old = log(DOWN.format(PORT), now=9000.0 + 25 * 3600)
    assert found(old)[PORT].verdict is Verdict.WARN


def test_slots_scanned_at_boot_are_no_event() -> None:
    assert found(log(DOWN.format(PORT), at=20.0))["kernel log"].verdict is Verdict.PASS


@pytest.mark.parametrize("why", ["", " (recovered by DPC)"])
def test_a_link_that_the_kernel_took_down_for_a_reset(why: str) -> None:
    planned = DOWN.format(PORT) + f"/Up ignored{why}"
    assert found(log(planned))["kernel log"].verdict is Verdict.PASS
    assert found(log(CUT_OFF.format(PORT), planned))[PORT].observed == "1 line"


def test_a_line_that_names_no_port() -> None:
    assert found(log("Slot(12): Link Down"))["kernel log"].verdict is Verdict.PASS


def test_a_node_without_ports() -> None:
    with pytest.raises(NotApplicable):
        found(log(), pci(gpu("0000:00:05.0")))
