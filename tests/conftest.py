# SPDX-License-Identifier: Apache-2.0
"""Hypothesis for every test: the same examples each time, however slow the machine.

Nothing is kept between runs, so that a checkout may be read-only.
"""

import os

from hypothesis import settings

settings.register_profile(
    "gpuaudit", database=None, deadline=None, derandomize="GPUAUDIT_FUZZ" not in os.environ
)
settings.load_profile("gpuaudit")
