# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from fakenode import healthy_node
from trees import make_host

from gpuaudit import audit, packs
from gpuaudit.check import Check, Expectations, Finding, Severity, Verdict, expect, unknown
from gpuaudit.cli.policy_command import drafted as drafted_text
from gpuaudit.engine import judged
from gpuaudit.host import Host, NotApplicable
from gpuaudit.policy import Policy, PolicySet, load_policies, read_layer
from gpuaudit.policy.draft import Drafted, draft, written

Count = Annotated[int, msgspec.Meta(ge=0, le=100)]


class SampleExpectations(Expectations, frozen=True, kw_only=True):
    modes: tuple[Literal["red", "green", "blue"], ...]
    switch: Literal["any", "up", "down"]
    most: Count
    least: Count
    exact: Count | None
    flag: bool
    quiet: bool


class Machine:
    """What the sample checks see; a test changes it."""

    mode, switch, most, least, exact, flag = "green", "up", 3, 50, 8, True


BASE = b"""policy: 1
expect:
  sample:
    modes: [red, green]
    switch: any
    most: 5
    least: 40
    exact: null
    flag: true
    quiet: false
"""


def mode(want: SampleExpectations) -> Finding:
    return expect(Machine.mode, want.modes, of="mode")


def switch(want: SampleExpectations) -> Finding:
    if want.switch == "any":
        raise NotApplicable("the policy wants nothing")
    return expect(Machine.switch, want.switch, of="switch")


def most(want: SampleExpectations) -> Iterator[Finding]:
    for number in (1, Machine.most):
        good = number <= want.most
        verdict = Verdict.PASS if good else Verdict.FAIL
        yield Finding(subject="most", verdict=verdict, observed=f"{number} errors")


def least(want: SampleExpectations) -> Finding:
    verdict = Verdict.PASS if Machine.least >= want.least else Verdict.WARN
    return Finding(subject="least", verdict=verdict, observed=f"{Machine.least} %")


def exact(want: SampleExpectations) -> Finding:
    return expect(Machine.exact, want.exact or Machine.exact, of="exact")


def flag(want: SampleExpectations) -> Finding:
    return expect(Machine.flag, want.flag, of="flag")


def silent(want: SampleExpectations) -> Finding:
    return unknown("silent", f"could not be read ({want.quiet})")


CHECKS = [
    Check(id=f"sample-{one.__name__}", function=one, severity=Severity.LOW, origin="here")
    for one in (mode, switch, most, least, exact, flag, silent)
]


def judge(one: Check, policy: Policy) -> tuple[Finding, ...]:
    try:
        return judged(one.function(policy.expectations(SampleExpectations))).findings
    except NotApplicable:
        return ()


def drafts(monkeypatch: pytest.MonkeyPatch, **machine: Any) -> dict[str, Drafted]:
    for name, value in machine.items():
        monkeypatch.setattr(Machine, name, value)
    sections = {"sample": SampleExpectations}
    policy = PolicySet(read_layer("base.yaml", BASE, sections), (), (), sections).for_node(())
    return {one.field: one for one in draft(policy, CHECKS, judge)}


def test_a_choice_is_narrowed_to_what_the_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drafts(monkeypatch)
    assert {name: one.value for name, one in found.items()} == {
        "modes": ["green"],
        "switch": "up",
        "exact": 8,
    }
    assert found["modes"].source == "base.yaml:4"
    assert found["modes"].was == ["red", "green"]
    assert not any(one.loosened for one in found.values())


@pytest.mark.parametrize(
    ("machine", "field", "value"),
    [
        ({"mode": "blue"}, "modes", ["blue"]),
        ({"most": 9}, "most", 9),
        ({"least": 33}, "least", 33),
        ({"flag": False}, "flag", False),
    ],
)
def test_what_the_node_fails_is_taken_over_and_said_so(
    monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any], field: str, value: Any
) -> None:
    found = drafts(monkeypatch, **machine)
    assert found[field].value == value
    assert found[field].loosened


def test_a_value_that_cannot_be_taken_over_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "most" not in drafts(monkeypatch, most=1000)
    assert "quiet" not in drafts(monkeypatch)


def test_a_number_within_its_limit_is_not_tightened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {"most", "least"} & drafts(monkeypatch).keys()


def test_the_file_says_what_was_observed_and_where_the_old_value_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = drafts(monkeypatch, most=9)
    text = written(found.values(), about=["a draft"], pci_ids=["10de:2330"])
    assert text.startswith("# a draft\npolicy: 1\nmatch:\n  pci_ids: ['10de:2330']\nexpect:\n")
    assert "# Observed: green (sample-mode). base.yaml:4 has [red, green].\n" in text
    assert (
        "    # Observed: 1 errors, 9 errors (sample-most). "
        "LOOSER: base.yaml:6 wants 5, which this node fails.\n    most: 9\n"
    ) in text
    sections = {"sample": SampleExpectations}
    assert read_layer("x", text.encode(), sections).document.expect["sample"]["most"] == 9


def test_words_that_yaml_reads_as_something_else_are_quoted() -> None:
    one = Drafted(
        section="a", field="b", value=["off", "10:20"], was=None, source="x:1", check="a-b",
        observed="off", loosened=False,
    )  # fmt: skip
    text = written([one], about=[], pci_ids=[])
    assert yaml.safe_load(text)["expect"]["a"]["b"] == ["off", "10:20"]


def outcomes(host: Host, *policies: str) -> dict[str, Verdict]:
    request = audit.Request(profile="bringup", policy_files=policies)
    return {r.check: r.verdict for r in audit.run(host, request).report.results}


def test_the_draft_of_a_healthy_node_fits_that_node(tmp_path: Path) -> None:
    node = healthy_node()
    text = drafted_text(node.host(), "node017.tar.gz", ())
    (tmp_path / "site.yaml").write_text(text)
    expected = yaml.safe_load(text)["expect"]
    assert expected["gpu"]["expected_count"] == 8
    assert expected["memory"]["thp_enabled"] == ["madvise"]
    before, after = outcomes(node.host()), outcomes(node.host(), str(tmp_path / "site.yaml"))
    bad = {Verdict.FAIL, Verdict.WARN, Verdict.ERROR, Verdict.UNKNOWN}
    assert {i for i, v in after.items() if v in bad} <= {i for i, v in before.items() if v in bad}


def test_the_draft_of_an_odd_node_takes_over_what_is_odd(tmp_path: Path) -> None:
    node = healthy_node()
    governors = [path for path in node.files if path.endswith("/scaling_governor")]
    node.files.update(dict.fromkeys(governors, "ondemand\n"))
    node.files["/sys/kernel/mm/transparent_hugepage/enabled"] = "always madvise [never]\n"
    node.files["/proc/swaps"] = (
        "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme0n1p3 partition 8388604 0 -2\n"
    )
    text = drafted_text(node.host(), "odd.tar.gz", ())
    (tmp_path / "site.yaml").write_text(text)
    before, after = outcomes(node.host()), outcomes(node.host(), str(tmp_path / "site.yaml"))
    for check in ("cpu-governor", "memory-thp-enabled", "memory-swap-off"):
        assert before[check] in {Verdict.FAIL, Verdict.WARN}
        assert after[check] in {Verdict.PASS, Verdict.NOT_APPLICABLE}
    expected = yaml.safe_load(text)["expect"]
    assert expected["cpu_frequency"]["governors"] == ["ondemand"]
    assert "never" in expected["memory"]["thp_enabled"]
    assert text.count("LOOSER") >= 3


def test_a_node_without_gpus_gets_a_draft_for_every_node(tmp_path: Path) -> None:
    sections = packs.sections(packs.load_checks())
    host = make_host(tmp_path, {"/sys/bus/pci/devices": None, "/proc/swaps": "Filename\n"})
    text = drafted_text(host, "this", ())
    layer = read_layer("draft", text.encode(), sections)
    assert layer.document.match is None
    assert load_policies(sections, site=False).base.name == "base.yaml"
