# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver at the next boot."""

from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpupersistence import PersistenceAtBoot
from gpuaudit.facts.kernels import DriverModules, InstalledKernels
from gpuaudit.facts.nextboot import NextKernel


class DriverBootExpectations(Expectations, frozen=True, kw_only=True):
    """What the next boot has to turn on."""

    persistence: Literal["required", "any"]


@check("driver-next-kernel", severity=Severity.HIGH)
def next_kernel(modules: DriverModules, kernels: InstalledKernels, entry: NextKernel) -> Finding:
    """The kernel of the next boot has an NVIDIA module.

    ## Why it matters
    A kernel update for which the driver was not built shows only after the reboot: no GPU works
    and the node is out until somebody builds the module.

    ## Evidence
    The kernel that the default boot entry starts, else the newest that is installed; the NVIDIA
    module in /lib/modules/RELEASE (modules.dep, updates/dkms, extra); dkms.service.

    ## How it is judged
    Fails when that kernel has no module. Warns where it is not certain that this kernel is taken,
    and where dkms.service builds missing modules at boot: that takes minutes and the headers.

    ## Exceptions
    Not applicable where no kernel has a module and no library of the driver is installed: it comes
    in a container, or not at all. Nor in a container, nor where the running kernel came from
    the network or a hypervisor. An image for network boot is judged by its newest kernel.

    ## What to do
    Install the headers of that kernel and run `dkms autoinstall -k RELEASE`, or install the
    packaged modules for it; until then keep the running kernel as the default.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    if isinstance(entry.release, str):
        release, certain = entry.release, True
    elif entry.release.kind == "unsupported" and kernels.running is not None:
        raise NotApplicable(entry.release.reason)
    else:
        release, certain = newest(kernels), len(kernels.releases) == 1
    with_it = [name for name, has in modules.kernels.items() if has is True]
    where = (f"with a module: {', '.join(with_it) or 'none'}", entry.source)
    has = modules.kernels.get(release, Absent("missing", f"/lib/modules has no kernel {release}"))
    if isinstance(has, Absent):
        return unknown(release, has.reason, evidence=where)
    if has:
        return passes(release, "has an NVIDIA module", evidence=where)
    soft = not certain or modules.built_at_boot
    what = "the next boot starts" if certain else "the newest kernel is"
    message = f"{what} {release}, which has no NVIDIA module"
    return (warns if soft else fails)(release, message, "no module", evidence=where)


def newest(kernels: InstalledKernels) -> str:
    """The kernel that a boot most likely takes. Raises NotApplicable without any."""
    if not kernels.releases:
        raise NotApplicable("no kernel is installed: it comes from outside")
    return kernels.releases[-1]


@check("driver-persistence-enabled", severity=Severity.LOW)
def persistence_enabled(boot: PersistenceAtBoot, want: DriverBootExpectations) -> Finding:
    """Persistence is turned on by the next boot too.

    ## Why it matters
    Without it the driver lets go of a GPU when its last user ends: the next start takes seconds for
    each GPU, and power limits and clocks that were set are forgotten.

    ## Evidence
    nvidia-persistenced.service with its drop-ins, the links and udev rules that start it; else
    units of the site and /etc/rc.local that run `nvidia-smi -pm 1`.

    ## How it is judged
    Warns when nothing starts the daemon, or when it is started with --no-persistence-mode, as
    Ubuntu's own unit does.

    ## Exceptions
    Not applicable in containers, where NVIDIA's GPU Operator brings the driver, without a driver,
    and where `driver_boot.persistence` is `any`. What runs now is gpu-persistence's question.

    ## What to do
    Run `systemctl enable --now nvidia-persistenced`; where its unit says --no-persistence-mode,
    set ExecStart without it by `systemctl edit nvidia-persistenced`.

    ## References
    - https://docs.nvidia.com/deploy/driver-persistence/persistence-daemon.html
    """
    of = "persistence at boot"
    if want.persistence == "any":
        return not_applicable(of, "the policy asks for nothing")
    if boot.by and not boot.but:
        return passes(of, "on", evidence=(boot.by,))
    return warns(of, boot.but, "off", expected="on")
