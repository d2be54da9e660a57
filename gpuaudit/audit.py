# SPDX-License-Identifier: Apache-2.0
"""One audit from start to end: packs, policy, profile, host -> report."""

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuaudit import __version__, packs, waivers
from gpuaudit.catalogue import what_to_do
from gpuaudit.check import JUDGED, Check, Verdict, worst
from gpuaudit.engine import Audit, Facts, judge
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNodes
from gpuaudit.facts.pci import PciDevices
from gpuaudit.host import Host
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.policy import Policy, load_policies
from gpuaudit.policy.profiles import chosen, load_profile
from gpuaudit.readings import taken
from gpuaudit.report import Node, PolicyFile, Report, Result, Run, Summary


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to audit and how. `timeout_s` None takes the profile's."""

    profile: str = "preflight"
    policy_files: tuple[str, ...] = ()
    waiver_file: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    timeout_s: float | None = None


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A report, the traces of the checks that crashed (for --verbose), and the totals to keep.

    There is no reading where only some checks ran: it would replace a better one.
    """

    report: Report
    traces: dict[str, str] = {}
    reading: bytes | None = None


def run(host: Host, request: Request) -> Audited:
    """Audit `host`. Raises PolicyError, packs.PackError or SnapshotError for wrong input."""
    clock = time.perf_counter()
    started_at = dt.datetime.now(dt.timezone.utc)
    checks = packs.load_checks()
    accepted = waivers.load_waivers(request.waiver_file, checks) if request.waiver_file else ()
    facts = Facts(host)
    done = judge_all(facts, checks, request)
    results = finished(done.results, checks, accepted, started_at.date())
    report = Report(
        node=node_of(facts, done.policy),
        run=Run(
            id=run_id(),
            started_at=started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            duration_ms=round((time.perf_counter() - clock) * 1000, 1),
            profile=request.profile,
            source=host.source,
            gpuaudit=__version__,
            policy=tuple(PolicyFile(path=x.name, sha256=x.sha256) for x in done.policy.layers),
        ),
        summary=summary_of(results),
        results=results,
    )
    whole = not request.select and not request.ignore and host.source == "live"
    reading = taken(facts) if whole else None
    return Audited(report=report, traces=done.traces, reading=reading)


def run_id() -> str:
    """A random UUID (version 4, RFC 9562); the module uuid takes 2 ms to import."""
    bits = int.from_bytes(os.urandom(16), "big")
    text = f"{bits & ~(0xF << 76) | 4 << 76:032x}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{variant}{text[17:20]}-{text[20:]}"


def judge_all(facts: Facts, checks: dict[str, Check], request: Request) -> Audit:
    """The checks of the profile, narrowed by the request, judged under the node's policy."""
    policies = load_policies(packs.sections(checks), request.policy_files)
    profile = load_profile(request.profile)
    wanted = chosen(checks, profile, request.select, request.ignore)
    return judge(
        facts,
        [checks[name] for name in wanted],
        policies,
        timeout_s=request.timeout_s or profile.timeout_s,
        check_timeout_s=profile.check_timeout_s,
        required=[name for name in wanted if profile.requires(name)],
    )


def finished(
    results: Iterable[Result],
    checks: dict[str, Check],
    accepted: tuple[waivers.PlacedWaiver, ...],
    today: dt.date,
) -> tuple[Result, ...]:
    """Results with waivers applied and, where something is wrong, what to do about it."""
    told = [waivers.waive(r, accepted, today) for r in results]
    advised = [
        msgspec.structs.replace(r, remediation=what_to_do(checks[r.check]))
        if r.verdict in {Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN}
        else r
        for r in told
    ]
    old = waivers.expired(accepted, today)
    return (*advised, old) if old else tuple(advised)


def summary_of(results: tuple[Result, ...]) -> Summary:
    """Counts by verdict, and the worst. When nothing was judged the verdict is unknown.

    A waived failure does not fail the node, and what does not apply says nothing about it.
    """
    counts = Counter(r.verdict.value for r in results)
    told = [r.verdict for r in results if r.verdict is not Verdict.NOT_APPLICABLE]
    verdict = worst(Verdict.PASS if v is Verdict.WAIVED else v for v in told)
    if verdict is Verdict.WARN and not anything_judged(results):
        verdict = Verdict.UNKNOWN
    return Summary(verdict=verdict, counts={v.value: counts.get(v.value, 0) for v in Verdict})


def anything_judged(results: Iterable[Result]) -> bool:
    """Whether a check came to a verdict. That a waiver has expired says nothing about the node."""
    return any(r.verdict in JUDGED and r.check != waivers.EXPIRED for r in results)


def node_of(facts: Facts, policy: Policy) -> Node:
    """What the machine is, as far as it could be read."""
    machine = facts.find(Machine)
    if machine is None:
        return Node(sku=policy.sku)
    names, driver = gpu_names(facts)
    online, offline = cpu_lists(facts)
    return Node(
        hostname=machine.hostname,
        machine=" ".join(w for w in (machine.vendor, machine.product) if w) or None,
        kernel=machine.kernel,
        os=machine.os,
        architecture=machine.architecture,
        virtualization=machine.hypervisor,
        boot_id=machine.boot_id,
        cpus_online=online,
        cpus_offline=offline,
        numa_nodes=numa_ids(facts),
        gpus=names,
        driver=driver,
        sku=policy.sku,
    )


def cpu_lists(facts: Facts) -> tuple[str | None, str | None]:
    """The CPUs that are online, and those that are present and not online."""
    cpus = facts.find(CpuSets)
    if cpus is None or isinstance(cpus.online, Absent):
        return None, None
    missing = None if isinstance(cpus.present, Absent) else format_list(cpus.present - cpus.online)
    return format_list(cpus.online), missing


def numa_ids(facts: Facts) -> tuple[int, ...] | None:
    """Ids of the NUMA nodes."""
    found = facts.find(NumaNodes)
    return tuple(node.id for node in found.nodes) if found else None


def gpu_names(facts: Facts) -> tuple[tuple[str, ...] | None, str | None]:
    """Product names of the GPUs (their PCI IDs without NVML) and the driver version.

    None for the names when nothing tells whether there are GPUs.
    """
    answers = facts.host.answered("nvml")
    if isinstance(answers, NvmlAnswers) and answers.devices:
        names = [answers.of_device(i, "nvmlDeviceGetName") for i in range(len(answers.devices))]
        driver = answers.of_system("nvmlSystemGetDriverVersion")
        return tuple(str(n.v) for n in names if n.ok), str(driver.v) if driver.ok else None
    devices = facts.find(PciDevices)
    return (tuple(gpu.id for gpu in devices.seen("gpu")) if devices else None), None


def exit_code(report: Report) -> int:
    """0 no failure, 1 a failure, 3 something required could not be told or nothing was judged."""
    if any(r.verdict is Verdict.FAIL for r in report.results):
        return 1
    undecided = {Verdict.UNKNOWN, Verdict.ERROR}
    if any(r.required and r.verdict in undecided for r in report.results):
        return 3
    return 0 if anything_judged(report.results) else 3
