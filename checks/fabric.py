# SPDX-License-Identifier: Apache-2.0
"""NVSwitch systems: Fabric Manager, and what each GPU says of its fabric."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    expect,
    fails,
    not_applicable,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.fabric import UNIT, FabricProcess, FabricUnit, FabricVersion
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpurecord import VGPU_HOSTS
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.gpuvalues import FABRIC_COMPLETED, Fabric
from gpuaudit.facts.node import Machine

STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
NO_SWITCH = "no NVSwitch on the PCI bus"
NO_NVLINK = "traffic between GPUs has no NVLink: CUDA refuses to start or uses PCIe"


class FabricExpectations(Expectations, frozen=True, kw_only=True):
    """Where Fabric Manager belongs.

    with-nvswitch: where an NVSwitch is on the PCI bus; bare-metal: on every machine that is no
    guest, because the switches cannot be seen; none: it runs elsewhere (GB200: switch trays).
    """

    manager: Literal["with-nvswitch", "bare-metal", "none"]


def require_manager(scan: GpuScan, node: Machine, want: FabricExpectations) -> None:
    """Raise NotApplicable where Fabric Manager does not belong, or does not run in this place."""
    if want.manager == "none":
        raise NotApplicable("Fabric Manager runs elsewhere for this product")
    if scan.functions is None:
        raise Unavailable("whether there is an NVSwitch cannot be told: the PCI bus was not read")
    if not scan.switches and (want.manager == "with-nvswitch" or node.is_vm):
        raise NotApplicable(NO_SWITCH)
    if node.container or scan.in_container:
        raise NotApplicable("in a container: Fabric Manager runs on the host")
    if not scan.switches and node.is_vm is None:
        raise Unavailable("whether this is a guest cannot be told")


@check("fabric-manager-running", severity=Severity.CRITICAL)
def manager_running(
    scan: GpuScan, process: FabricProcess, node: Machine, want: FabricExpectations
) -> Finding:
    """Fabric Manager runs where there are NVSwitches.

    ## Why it matters
    It sets up the NVSwitches. Without it CUDA does not start on such boards, or NVLink errors go
    unhandled.

    ## Evidence
    NVSwitches on the PCI bus, nv-fabricmanager in the process table.

    ## How it is judged
    The process is there, where `fabric.manager` says that it belongs.

    ## Exceptions
    Not applicable without NVSwitch, in guests that are given GPUs only, and in containers.

    ## What to do
    Run `systemctl enable --now nvidia-fabricmanager` and read `journalctl -u nvidia-fabricmanager`
    when it does not stay up.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    require_manager(scan, node, want)
    words = {True: "runs", False: "does not run"}
    state = process.running if isinstance(process.running, Absent) else words[process.running]
    message = f"Fabric Manager {state}"
    return expect(state, "runs", of="nv-fabricmanager", message=message, cost=NO_NVLINK)


@check("fabric-manager-version", severity=Severity.HIGH)
def manager_version(
    scan: GpuScan, versions: FabricVersion, node: Machine, want: FabricExpectations
) -> Finding:
    """Fabric Manager has exactly the version of the driver.

    ## Why it matters
    It refuses to run with any other, often only at the next restart.

    ## Evidence
    `nv-fabricmanager --version` or its Debian package; /proc/driver/nvidia/version, in an image the
    name of the driver's library.

    ## How it is judged
    The two are equal.

    ## Exceptions
    As for fabric-manager-running. An image without Fabric Manager is not judged.

    ## What to do
    Install the nvidia-fabricmanager package of the driver's release and hold both packages.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    if not scan.image:
        require_manager(scan, node, want)
    elif isinstance(versions.manager, Absent) and versions.manager.kind == "missing":
        raise NotApplicable("the image holds no Fabric Manager")
    driver = versions.driver
    if isinstance(driver, Absent):
        return expect(driver, None, of="nv-fabricmanager")
    message = f"its version is {versions.manager}, that of the driver {driver}"
    return expect(versions.manager, driver, of="nv-fabricmanager", message=message)


@check("fabric-manager-enabled", severity=Severity.HIGH)
def manager_enabled(
    scan: GpuScan, unit: FabricUnit, node: Machine, want: FabricExpectations
) -> Finding:
    """Fabric Manager starts at the next boot.

    ## Why it matters
    A node on which it was started by hand comes back from its next reboot without NVLink.

    ## Evidence
    nvidia-fabricmanager.service in the folders of systemd, links in /etc/systemd/system/*.wants.

    ## How it is judged
    The unit is installed, not masked, and wanted by a target.

    ## Exceptions
    As for fabric-manager-running. In an image: not applicable unless the unit is installed. Where
    it runs without a unit, something else starts it (the GPU Operator's driver container).

    ## What to do
    Run `systemctl enable nvidia-fabricmanager`, after `systemctl unmask` if it is masked.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    - https://www.freedesktop.org/software/systemd/man/latest/systemctl.html
    """
    if not scan.image:
        require_manager(scan, node, want)
    elif unit.state == "not installed":
        raise NotApplicable("the image holds no Fabric Manager")
    return expect(unit.state, "enabled", of=UNIT, message=f"the unit is {unit.state}")


@check("fabric-state", severity=Severity.CRITICAL)
def state(gpus: Gpus) -> Iterator[Finding]:
    """Every GPU has joined its NVLink fabric.

    ## Why it matters
    A GPU that is not registered has no NVLink, even while Fabric Manager runs.

    ## Evidence
    nvmlDeviceGetGpuFabricInfoV: state and status (Hopper and later).

    ## How it is judged
    State 3 completed, and status 0.

    ## Exceptions
    Not applicable where NVML says that the GPU has no fabric (PCIe boards, A100), unless another of
    its model has joined one; and on a vGPU host before the registration, which waits there for a
    guest. In progress right after boot may settle: run again after a minute.

    ## What to do
    Read `journalctl -u nvidia-fabricmanager`, restart it when no job runs, then reset the GPUs.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    for gpu in gpus.asked():
        waits = isinstance(gpu.fabric, Fabric) and gpu.fabric.state not in {0, FABRIC_COMPLETED}
        if waits and gpu.virtualization in VGPU_HOSTS:
            yield not_applicable(gpu.subject, "a host of guests: their partitions are made later")
        elif is_odd(gpu, gpus):
            text = "it says that it has no fabric, others of its model have joined one"
            yield fails(gpu.subject, text, STATES[0], expected="completed", cost=NO_NVLINK)
        else:
            yield of_state(gpu.subject, gpu.fabric)


def is_odd(gpu: Gpu, gpus: Gpus) -> bool:
    """It says that it has no fabric, though another of its model has joined one."""
    kin = (o.fabric for o in gpus.records if o.pci_id == gpu.pci_id)
    joined = any(isinstance(one, Fabric) and one.state == FABRIC_COMPLETED for one in kin)
    none = isinstance(gpu.fabric, Fabric) and gpu.fabric.state == 0
    shared = gpu.mig_runs or gpu.is_vgpu or gpu.virtualization in VGPU_HOSTS
    return none and joined and not shared


def of_state(subject: str, fabric: Fabric | Absent) -> Finding:
    """One GPU."""
    if isinstance(fabric, Absent):
        return expect(fabric, None, of=subject)
    if fabric.state == 0:
        return not_applicable(subject, "this GPU has no NVLink fabric")
    seen = STATES.get(fabric.state, f"state {fabric.state}")
    if fabric.state == FABRIC_COMPLETED and fabric.status:
        seen = f"completed with NVML error {fabric.status}"
    return expect(seen, "completed", of=subject, message=f"fabric state: {seen}", cost=NO_NVLINK)
