# SPDX-License-Identifier: Apache-2.0
"""A report in one of the formats."""

import importlib

from gpuaudit.cli.output import RENDERERS
from gpuaudit.report import Report


def rendered(report: Report, name: str) -> str:
    """With everything that --verbose shows."""
    page: str = importlib.import_module(RENDERERS[name]).render(report, verbose=True)
    return page
