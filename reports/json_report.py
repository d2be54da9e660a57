# SPDX-License-Identifier: Apache-2.0
"""The report as JSON, gpuaudit.report/1."""

from gpuaudit.report import Report, encode


def render(report: Report, *, verbose: bool = False, terminal: bool = False) -> str:  # noqa: ARG001 - every renderer takes the same arguments
    """The whole report; `verbose` and `terminal` change nothing."""
    return encode(report).decode()
