# SPDX-License-Identifier: Apache-2.0
"""Call one check with facts made by hand and the values of the base policy."""

import importlib
from importlib import resources
from typing import Any

import msgspec
import yaml

from gpuaudit.check import CHECKS, Expectations, Finding

BASE = yaml.safe_load(resources.files("gpuaudit.policy").joinpath("base.yaml").read_text())


def judge(check: str, *facts: object, **want: Any) -> list[Finding]:
    """The findings of the check `module/check-id`. `want` changes single values of the policy."""
    module, _, check_id = check.partition("/")
    importlib.import_module(f"gpuaudit.checks.{module}")
    one = CHECKS[check_id]
    given: dict[type, object] = {type(fact): fact for fact in facts}
    answer = one.function(*[supply(kind, given, want) for kind in one.needs])
    return [answer] if isinstance(answer, Finding) else list(answer)


def supply(kind: type, given: dict[type, object], want: dict[str, Any]) -> object:
    """The fact of this type, or the expectations of a section."""
    if issubclass(kind, Expectations):
        return msgspec.convert(BASE["expect"][kind.section()] | want, kind)
    return given[kind]


def verdicts(findings: list[Finding]) -> list[tuple[str, str]]:
    """(subject, verdict) of each finding."""
    return [(f.subject, f.verdict.value) for f in findings]
