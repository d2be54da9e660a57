# SPDX-License-Identifier: Apache-2.0
"""GPU facts made by hand: eight healthy H100, and ways to change single fields."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from fakenvml import DRIVER, healthy_h100

from gpuaudit import packs
from gpuaudit.check import CHECKS, Expectations, Finding, Verdict
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus, gpu_addresses, record
from gpuaudit.facts.gpuscan import GpuScan, PciGpu
from gpuaudit.facts.node import Machine
from gpuaudit.host.answers import NvmlAnswers, Problem
from gpuaudit.policy import load_policies

F = TypeVar("F")
H100 = "10de:2330"
UNSUPPORTED = Absent("unsupported", "this GPU does not support it")
FAILED = Absent("failed", "GPU is lost")
packs.load_checks(plugins=False)
POLICIES = load_policies(packs.sections(CHECKS), site=False)


def answers(document: dict[str, Any] | None = None) -> NvmlAnswers:
    return msgspec.convert(document or healthy_h100(), NvmlAnswers)


def scan(addresses: Iterable[str], **changes: Any) -> GpuScan:
    functions = tuple(
        PciGpu(address=address, id=H100, driver="nvidia", dead=False) for address in addresses
    )
    listed = {one.address: False for one in functions}
    fields = {
        "functions": functions,
        "handed_out": (),
        "switches": (),
        "listed": listed,
        "confined": None,
        "kinds": tuple(one.id for one in functions),
    }
    return GpuScan(**{**fields, **changes})


def nowhere(**changes: Any) -> GpuScan:
    return scan((), functions=None, listed=None, **changes)


def gpus(document: dict[str, Any] | None = None, count: int = 8) -> Gpus:
    told = answers(document or healthy_h100(count))
    addresses = gpu_addresses(told, nowhere())
    return Gpus(
        records=tuple(record(told, i, a, DRIVER) for i, a in enumerate(addresses)),
        problem=None,
        driver=DRIVER,
        library=DRIVER,
    )


def changed(index: int = 3, count: int = 8, **fields: Any) -> Gpus:
    """Eight healthy GPUs, one of which is not."""
    healthy = gpus(count=count)
    records = list(healthy.records)
    records[index] = msgspec.structs.replace(records[index], **fields)
    return msgspec.structs.replace(healthy, records=tuple(records))


def silent(kind: str = "driver-not-loaded", sentence: str = "The driver is not loaded.") -> Gpus:
    return Gpus(records=(), problem=Problem(kind, sentence))


def machine(**changes: Any) -> Machine:
    fields: dict[str, Any] = dict.fromkeys(
        ("hostname", "vendor", "product", "os", "architecture", "boot_id")
    )
    fields |= {"kernel": "6.8.0-50-generic", "hypervisor": "", "container": False}
    return Machine(**{**fields, **changes})


def policy(kind: type[F], pci_id: str = H100, **changes: Any) -> F:
    """The expectations of a product, with single values changed."""
    assert issubclass(kind, Expectations)
    return msgspec.structs.replace(POLICIES.for_node((pci_id,)).expectations(kind), **changes)


def function(check_id: str) -> Any:
    return CHECKS[check_id].function


def section(check_id: str) -> Any:
    """The Expectations type of a check."""
    return next(k for k in CHECKS[check_id].needs if issubclass(k, Expectations))


def verdicts(answer: Finding | Iterable[Finding]) -> list[str]:
    """What each finding says, in order."""
    return [f.verdict.value for f in findings(answer)]


def findings(answer: Finding | Iterable[Finding]) -> list[Finding]:
    return [answer] if isinstance(answer, Finding) else list(answer)


def only(answer: Finding | Iterable[Finding], verdict: str = "fail") -> Finding:
    """The one finding with this verdict; all others pass."""
    found = findings(answer)
    assert {f.verdict for f in found} <= {Verdict(verdict), Verdict.PASS}, found
    (one,) = (f for f in found if f.verdict is Verdict(verdict))
    return one
