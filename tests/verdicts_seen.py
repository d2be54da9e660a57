# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: writes which verdicts each check gave while the tests ran.

Load it with -p before any check is imported; VERDICTS_SEEN names the file.
"""

import functools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpuaudit.check
from gpuaudit.check import Finding, Severity

SEEN: defaultdict[str, Counter[str]] = defaultdict(Counter)
register = gpuaudit.check.check


def watched(check_id: str, *, severity: Severity) -> Callable[[Any], Any]:
    """As gpuaudit.check.check, with a note of every finding."""

    def wrap(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def call(*facts: Any, **named: Any) -> Any:
            answer = function(*facts, **named)
            if isinstance(answer, Finding):
                return noted(check_id, answer)
            return each(check_id, answer)

        return register(check_id, severity=severity)(call)

    return wrap


def each(check_id: str, answers: Iterator[Finding]) -> Iterator[Finding]:
    """Findings as they are asked for."""
    for one in answers:
        yield noted(check_id, one)


def noted(check_id: str, finding: Finding) -> Finding:
    """Count it and hand it on."""
    SEEN[check_id][finding.verdict.value] += 1
    return finding


gpuaudit.check.check = watched


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    Path(os.environ["VERDICTS_SEEN"]).write_text(json.dumps(SEEN))
