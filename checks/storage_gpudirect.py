# SPDX-License-Identifier: Apache-2.0
"""GPUDirect Storage."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpudirectstorage import CONFIG, GpuDirectStorage

Findings = Iterator[Finding]
BOUNCE = "each read is copied through memory of the CPU, as without GPUDirect Storage"


class StorageGpudirectExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of GPUDirect Storage."""

    gpudirect: Literal["any", "required"]


@check("storage-gpudirect", severity=Severity.MEDIUM)
def gpudirect(found: GpuDirectStorage, want: StorageGpudirectExpectations) -> Findings:
    """GPUDirect Storage works where it is installed or asked for.

    ## Why it matters
    cuFile falls back to copies through the CPU's memory without a word to the program, when its
    module is missing or its configuration cannot be read.

    ## Evidence
    /proc/driver/nvidia-fs/version and /etc/cufile.json.

    ## How it is judged
    Where nvidia-fs is loaded, or `storage_gpudirect.gpudirect` is `required`: the configuration is
    JSON, or a warning, and does not force compatibility mode. `required` fails without the module,
    unless properties.use_pci_p2pdma is on, which goes without it.

    ## Exceptions
    Not applicable where the module is not loaded and the policy does not ask: the CUDA toolkit
    brings cufile.json to nodes that never use it. In a container /proc/driver/nvidia-fs is the
    node's. Whether a file system supports it, `gdscheck -p` tells; it needs a GPU to run on.

    ## What to do
    Install `nvidia-gds`, run `modprobe nvidia-fs`, name it in /etc/modules-load.d, and run
    /usr/local/cuda/gds/tools/gdscheck -p.

    ## References
    - https://docs.nvidia.com/gpudirect-storage/troubleshooting-guide/index.html
    - https://docs.nvidia.com/gpudirect-storage/configuration-guide/index.html
    """
    config = found.config if isinstance(found.config, dict) else {}
    required = want.gpudirect == "required"
    image = isinstance(found.version, Absent) and found.version.kind == "unsupported"
    if not required and (found.version is None or (image and found.config is None)):
        raise NotApplicable("nvidia-fs is not loaded and the policy does not ask for it")
    if isinstance(found.version, Absent):
        yield expect(found.version, None, of="nvidia-fs")
    elif found.version is not None:
        yield passes("nvidia-fs", found.version.partition("\n")[0])
    elif config.get("properties.use_pci_p2pdma"):
        yield passes("nvidia-fs", "not loaded; cuFile uses PCI peer-to-peer DMA of the kernel")
    else:
        yield fails("nvidia-fs", "not loaded, and the policy wants it", "not loaded", cost=BOUNCE)
    if found.version is not None or required:
        yield judge_config(found.config)


def judge_config(config: dict[str, bool] | Absent | None) -> Finding:
    """The file that cuFile reads."""
    if isinstance(config, Absent):
        if config.kind != "failed" or "JSON" not in config.reason:
            return expect(config, None, of=CONFIG)
        return warns(CONFIG, config.reason, "no JSON", cost=BOUNCE)
    if config is None:
        return passes(CONFIG, "not there: cuFile takes its defaults")
    if config.get("properties.force_compat_mode"):
        return warns(CONFIG, "force_compat_mode is on", "on", expected="off", cost=BOUNCE)
    return passes(CONFIG, "JSON, does not force compatibility mode")
