# SPDX-License-Identifier: Apache-2.0
"""Types shared by the parts of the builder."""

from typing import Any

from trees import Link as To

Files = dict[str, str | bytes | To | None]
Answers = dict[str, Any]
