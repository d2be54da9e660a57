# SPDX-License-Identifier: Apache-2.0
"""The renderers: what is wrong comes first, nothing is lost, nothing a node says is obeyed."""

import importlib
import re
from html.parser import HTMLParser

import msgspec
import pytest

from gpuaudit.check import Finding, Severity, Verdict, fails, not_applicable, passes, unknown
from gpuaudit.cli.output import RENDERERS
from gpuaudit.report import Node, Report, Result, Run, Summary, decode

EVIL = "<script>alert(1)</script>\x1b[31m\u202e\x00"


def result(check: str, verdict: Verdict, *findings: Finding, reason: str | None = None) -> Result:
    return Result(
        check=check,
        title=f"The title of {check}",
        severity=Severity.CRITICAL if check.endswith("critical") else Severity.LOW,
        verdict=verdict,
        findings=findings,
        reason=reason,
        remediation="Run `a fix`." if verdict is Verdict.FAIL else None,
    )


def report(*results: Result, hostname: str = "n1") -> Report:
    counts = {v.value: sum(r.verdict is v for r in results) for v in Verdict}
    return Report(
        node=Node(hostname=hostname, gpus=("A", "A", "B")),
        run=Run(
            id="i",
            started_at="2026-01-01T00:00:00Z",
            duration_ms=1234.5,
            profile="preflight",
            source="live",
            gpuaudit="0.1",
        ),
        summary=Summary(verdict=Verdict.FAIL, counts=counts),
        results=results,
    )


def rendered(name: str, one: Report, *, verbose: bool = False) -> str:
    text = importlib.import_module(RENDERERS[name]).render(one, verbose=verbose)
    assert isinstance(text, str)
    return text


def example() -> Report:
    same = [fails(f"GPU {i}", "is slow", "1", expected="2", cost="half") for i in range(6)]
    return report(
        result("a-low", Verdict.FAIL, fails("x", "is bad"), passes("y")),
        result("b-critical", Verdict.FAIL, *same),
        result("c-crash", Verdict.ERROR, reason="the check crashed: E (f.py:1)"),
        result("d-unknown", Verdict.UNKNOWN, reason="needs root"),
        result("e-unknown", Verdict.UNKNOWN, reason="needs root"),
        result("f-na", Verdict.NOT_APPLICABLE, reason="no NVIDIA GPU on this machine"),
        result("g-good", Verdict.PASS, passes("z", "fine")),
        result(
            "h-mixed", Verdict.UNKNOWN, unknown("one", "idle"), not_applicable("two", "emulated")
        ),
    )


def test_text_shows_the_worst_first_and_every_check_once() -> None:
    text = rendered("text", example(), verbose=True)
    order = ["b-critical", "a-low", "c-crash", "d-unknown", "f-na", "g-good"]
    assert [text.index(check) for check in order] == sorted(text.index(check) for check in order)
    for check in ("a-low", "b-critical", "c-crash", "d-unknown", "e-unknown", "f-na", "h-mixed"):
        assert len(re.findall(rf"\b{check}\b(?!\s*$)", text)) >= 1
    assert "2 x A, 1 x B" in text
    assert "2 checks: needs root (d-unknown, e-unknown)" in text
    assert "one: idle (h-mixed)" in text or "idle (h-mixed)" in text


def test_text_tells_alike_findings_once() -> None:
    text = rendered("text", example())
    assert text.count("is slow") == 1
    assert "GPU 0, GPU 1, GPU 2 and 3 more: is slow; observed 1, expected 2; cost: half" in text
    assert "1 other is good" in text
    assert "g-good" not in text


def test_text_names_whom_it_could_not_tell_of_beside_others() -> None:
    lost = (unknown("GPU 3", "is lost"), passes("GPU 4"))
    ids = [f"u-{i}" for i in range(12)]
    one = report(*(result(check, Verdict.UNKNOWN, *lost, reason="is lost") for check in ids))
    assert "12 checks: GPU 3: is lost (u-0, " in rendered("text", one)
    assert "u-7 and 4 more, which -v lists)" in " ".join(rendered("text", one).split())
    assert all(check in rendered("text", one, verbose=True) for check in ids)
    said = result("a", Verdict.UNKNOWN, unknown("NVML", "x"), passes("b"), reason="NVML hung")
    assert "        NVML hung (a)" in rendered("text", report(said))


def test_text_fits_its_width_and_is_plain() -> None:
    text = rendered("text", example(), verbose=True)
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


def test_text_of_a_hostile_node_cannot_steer_a_terminal() -> None:
    one = report(result("a-b", Verdict.FAIL, fails(EVIL, EVIL, EVIL)), hostname=EVIL)
    text = rendered("text", one, verbose=True)
    assert all(c == "\n" or c.isprintable() for c in text)


class Page(HTMLParser):
    """Collects the elements, and fails on one that is closed in the wrong order."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [v or "" for k, v in attrs if k in {"src", "href"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("hostname", ["n1", EVIL])
def test_html_is_well_formed_inert_and_loads_nothing(hostname: str) -> None:
    one = example()
    hostile = result("i-evil", Verdict.FAIL, fails(EVIL, EVIL, EVIL, cost=EVIL, evidence=(EVIL,)))
    page = Page()
    text = rendered("html", report(*one.results, hostile, hostname=hostname))
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.links
    assert [link for link in page.links if not link.startswith("#")] == []
    assert "script" not in page.seen
    assert "default-src 'none'" in text
    for check in one.results:
        assert f'id="{check.check}"' in text
    assert "<code>a fix</code>" in text


def test_html_starts_with_what_matters_and_folds_the_rest() -> None:
    page = rendered("html", example())
    glance, _, rest = page.partition("Failed (2)")
    for link in ("b-critical", "a-low", "c-crash"):
        assert f'href="#{link}"' in glance
    assert "GPU 0 and 5 more" in glance
    assert "g-good" not in glance
    assert re.search(r'<details class="pass-edge">\n<summary><h2>Good \(1\)', rest)
    assert "needs root <span" in rest
    assert rest.count("(2 checks)") == 1


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_html_text_has_contrast_in_both_schemes() -> None:
    schemes = re.findall(r":root \{(.*?)\}", rendered("html", example()), re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme))
        inks = set(colours) - {"paper", "card", "line"}
        assert len(inks) == 9
        for ink in inks:
            for ground in ("paper", "card"):
                light, dark = sorted(luminance(colours[c]) for c in (ink, ground))[::-1]
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


@pytest.mark.parametrize(
    ("variables", "takes"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colour_is_asked_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, takes: bool
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert importlib.import_module(RENDERERS["text"]).takes_colour() is takes


def test_a_command_is_not_broken_over_two_lines() -> None:
    one = result("a-b", Verdict.FAIL, fails("x", "is bad"))
    command = "`setpci -s PORT ECAP_ACS+6.w=0000:002c`"
    told = msgspec.structs.replace(one, remediation=f"{'word ' * 14}{command} until the next boot.")
    assert command in rendered("text", report(told))


def test_json_is_the_report() -> None:
    assert decode(rendered("json", example()).encode()) == example()
