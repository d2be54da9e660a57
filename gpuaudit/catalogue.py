# SPDX-License-Identifier: Apache-2.0
"""A check's documentation: its docstring, under fixed headings."""

import inspect
import re

from gpuaudit.check import Check

HEADINGS = (
    "Why it matters",
    "Evidence",
    "How it is judged",
    "Exceptions",
    "What to do",
    "References",
)


def documentation(one: Check) -> dict[str, str]:
    """Heading -> text, in the order written; the part before the first heading is not in it."""
    text = inspect.cleandoc(one.function.__doc__ or "")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {parts[i].strip(): parts[i + 1].strip() for i in range(1, len(parts) - 1, 2)}


def what_to_do(one: Check) -> str | None:
    """The first paragraph of "What to do" as one line."""
    text = documentation(one).get("What to do", "")
    return " ".join(text.partition("\n\n")[0].split()) or None


def problems(one: Check) -> list[str]:
    """What is wrong with a check's documentation; nothing when it keeps the house's shape."""
    found = documentation(one)
    wrong = [f"heading {name!r} is missing" for name in HEADINGS if name not in found]
    wrong += [f"heading {name!r} is unknown" for name in found if name not in HEADINGS]
    wrong += [f"heading {name!r} is empty" for name, text in found.items() if not text]
    if not 10 <= len(one.title) <= 72:
        wrong.append(f"the title has {len(one.title)} characters, 10 to 72 are wanted")
    if re.match(r"(ensure|check|verify)\b", one.title, re.IGNORECASE):
        wrong.append("the title is an order, not a sentence that is true when the check passes")
    if "http" not in found.get("References", ""):
        wrong.append("References names no source with an address")
    subject = one.function.__module__.rpartition(".")[2].partition("_")[0]
    if one.id.partition("-")[0] != subject:
        wrong.append(f"the ID does not start with its file's subject, {subject}")
    return wrong
