# SPDX-License-Identifier: Apache-2.0
"""The engine: facts once, injection by type, one crash is one verdict, time is kept."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from samplechecks import registry
from trees import make_host

from gpuaudit import audit, packs
from gpuaudit.check import Check, Finding, Severity, Verdict, check, passes
from gpuaudit.engine import Facts, judge
from gpuaudit.facts.base import PROBES, Fact, probe
from gpuaudit.facts.pci import PciDevices
from gpuaudit.host import Host, NotApplicable, Unavailable
from gpuaudit.policy import load_policies
from gpuaudit.report import Result


class Colour(Fact, frozen=True, kw_only=True):
    """A made-up fact."""

    name: str


class Shade(Fact, frozen=True, kw_only=True):
    """A made-up fact that rests on another."""

    name: str


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    with registry():
        yield


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_host(tmp_path, {"/proc/sys/kernel/hostname": "n1", "/sys/bus/pci/devices": None})


def judged(host: Host, *functions: Callable[..., Any], timeout_s: float = 5.0) -> list[Result]:
    checks = [
        Check(id=f"made-up-{i}", function=f, severity=Severity.LOW, origin="test")
        for i, f in enumerate(functions)
    ]
    done = judge(
        Facts(host),
        checks,
        load_policies(packs.sections(packs.load_checks(plugins=False)), site=False),
        timeout_s=timeout_s,
        check_timeout_s=timeout_s,
    )
    return list(done.results)


def provide(kind: type, value: Any, calls: list[str] | None = None) -> None:
    def probe_of_value(_host: Host) -> Any:
        if calls is not None:
            calls.append(kind.__name__)
        if isinstance(value, Exception):
            raise value
        return value

    probe_of_value.__annotations__ = {"_host": Host, "return": kind}
    probe_of_value.__module__ = f"made_up_{kind.__name__}"
    probe(probe_of_value)


def is_red(colour: Colour) -> Finding:
    """The colour is red."""
    return passes("colour", colour.name)


def test_a_fact_is_probed_once_for_all_checks(host: Host) -> None:
    calls: list[str] = []
    provide(Colour, Colour(name="red"), calls)
    results = judged(host, is_red, is_red)
    assert [r.verdict for r in results] == [Verdict.PASS, Verdict.PASS]
    assert calls == ["Colour"]


def test_a_probe_that_fails_is_not_tried_again(host: Host) -> None:
    calls: list[str] = []
    provide(Colour, Unavailable("the lamp is off"), calls)
    results = judged(host, is_red, is_red)
    assert [(r.verdict, r.reason) for r in results] == [(Verdict.UNKNOWN, "the lamp is off")] * 2
    assert calls == ["Colour"]


def test_probes_get_other_facts_by_type(host: Host) -> None:
    provide(Colour, Colour(name="red"))

    def shade(colour: Colour) -> Shade:
        return Shade(name=f"dark {colour.name}")

    shade.__module__ = "made_up_shade"
    probe(shade)

    def is_dark(one: Shade) -> Finding:
        return passes("shade", one.name)

    (result,) = judged(host, is_dark)
    assert result.findings[0].observed == "dark red"


def test_not_applicable_keeps_its_reason(host: Host) -> None:
    provide(Colour, NotApplicable("this machine is grey"))
    (result,) = judged(host, is_red)
    assert (result.verdict, result.reason) == (Verdict.NOT_APPLICABLE, "this machine is grey")


def test_a_crash_is_error_for_that_check_alone_and_names_the_line(host: Host) -> None:
    provide(Colour, Colour(name="red"))

    def breaks(colour: Colour) -> Finding:
        raise ZeroDivisionError(colour.name)

    bad, good = judged(host, breaks, is_red)
    assert bad.verdict is Verdict.ERROR
    assert bad.reason is not None
    assert "ZeroDivisionError: red (test_engine.py:" in bad.reason
    assert good.verdict is Verdict.PASS


def test_a_check_that_yields_nothing_is_unknown(host: Host) -> None:
    def silent() -> Iterator[Finding]:
        yield from ()

    (result,) = judged(host, silent)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "the check found nothing to judge")


def test_a_generator_that_crashes_halfway_is_error(host: Host) -> None:
    def half() -> Iterator[Finding]:
        yield passes("first")
        raise KeyError("second")

    (result,) = judged(host, half)
    assert result.verdict is Verdict.ERROR
    assert result.findings == ()


def test_a_check_that_never_ends_is_cut_at_its_budget(host: Host) -> None:
    def loops() -> Finding:
        while True:
            pass

    def swallows() -> Finding:
        while True:
            with contextlib.suppress(Exception):  # what a careless check would do
                time.sleep(60)

    results = judged(host, loops, swallows, timeout_s=0.4)
    assert [r.verdict for r in results] == [Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert results[0].reason == "not finished within 0.4 s"
    assert results[1].reason == "not run: the time of the whole audit was spent"


def test_the_policy_can_skip_a_check_with_a_reason(host: Host, tmp_path: Path) -> None:
    @check("memory-made-up", severity=Severity.LOW)
    def made_up() -> Finding:
        """A made-up property holds."""
        return passes("x")

    site = tmp_path / "site.yaml"
    site.write_text("policy: 1\nskip:\n  memory-made-up: a reason of ours\n")
    request = audit.Request(select=("memory-made-up",), policy_files=(str(site),))
    (result,) = audit.run(host, request).report.results
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason == "the policy skips it: a reason of ours"


def test_a_run_in_which_nothing_was_judged_is_unknown(host: Host) -> None:
    @check("memory-made-up", severity=Severity.LOW)
    def made_up() -> Finding:
        """A made-up property holds."""
        raise NotApplicable("nothing here")

    report = audit.run(host, audit.Request(select=("memory-made-up",))).report
    assert report.summary.verdict is Verdict.UNKNOWN
    assert audit.exit_code(report) == 3


def test_a_probe_that_crashes_costs_its_checks_and_nothing_else(host: Host) -> None:
    """Also the one that picks the SKU and names the GPUs, which no check is there to guard."""

    def broken(_host: Host) -> PciDevices:
        raise ZeroDivisionError("a bug")

    broken.__annotations__ = {"_host": Host, "return": PciDevices}
    PROBES[PciDevices] = broken
    select = ("pcie-link-width", "memory-thp-enabled")
    report = audit.run(host, audit.Request(select=select)).report
    verdicts = {r.check: r.verdict for r in report.results}
    assert verdicts["pcie-link-width"] is Verdict.ERROR
    assert verdicts["memory-thp-enabled"] is not Verdict.ERROR
    assert report.node.hostname == "n1"
    assert report.node.gpus is None


def test_what_is_asked_beside_the_checks_is_bounded(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleeps(_host: Host) -> Colour:
        time.sleep(60)
        return Colour(name="late")

    monkeypatch.setattr("gpuaudit.engine.FIND_LIMIT_S", 0.2)
    sleeps.__module__ = "made_up_sleeps"
    probe(sleeps)
    assert Facts(host).find(Colour) is None


def test_an_expired_waiver_alone_judges_nothing(host: Host, tmp_path: Path) -> None:
    @check("memory-made-up", severity=Severity.LOW)
    def made_up() -> Finding:
        """A made-up property holds."""
        raise NotApplicable("nothing here")

    file = tmp_path / "waivers.yaml"
    file.write_text(
        "waivers:\n  - {check: memory-made-up, reason: r, until: 2020-01-01, owner: o}\n"
    )
    request = audit.Request(select=("memory-made-up",), waiver_file=str(file))
    report = audit.run(host, request).report
    assert [r.check for r in report.results] == ["memory-made-up", "waiver-expired"]
    assert report.summary.verdict is Verdict.UNKNOWN
    assert audit.exit_code(report) == 3
