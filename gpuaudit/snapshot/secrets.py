# SPDX-License-Identifier: Apache-2.0
"""What is never recorded, scrubbed or not: values of variables that no check asks for.

Tokens and passwords stand in environments, in the files that set them and in units of systemd.
"""

import re
from collections.abc import Callable

from gpuaudit.facts.environmentfiles import set_pattern
from gpuaudit.host.environ import is_environ, kept, matters

HIDDEN = "hidden"
UNIT = re.compile(r"/systemd/.*\.(?:conf|service|socket|slice|mount)$")
UNIT_KEY = re.compile(r"[ \t]*(?:Default|Manager)?Environment[ \t]*=")
WORD = re.compile(
    r"\"([A-Za-z_]\w*)=[^\"]*\"?|'([A-Za-z_]\w*)=[^']*'?"
    r"|\b([A-Za-z_]\w*)=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*"
)
QUOTED = re.compile(r"(?<![=\w])(?:\"([A-Za-z_]\w*)=[^\"]*\"?|'([A-Za-z_]\w*)=[^']*'?)")
SUBSTITUTED = re.compile(r"\$\([^()\n]*\)")
COMMENT = re.compile(r"(?<=[ \t])#[^\"'\n]*$")
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
ALL_EXPORTED = re.compile(r"\s*set\s+(?:-a|-o\s+allexport)\b")
CONFIG = re.compile(r"/etc/.*\.(?:json|toml|conf|yaml)$")
SECRET_KEY = re.compile(
    rb"((?<![\w.-])[\"']?[\w.-]{0,64}(?:auth|password|passwd|secret|token|credential)[\w.-]{0,64}"
    rb"[\"']?[ \t]*[=:][ \t]*)(\"{3}[^\"]*\"{3}|\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]{0,4096}\])",
    re.IGNORECASE,
)
URL_USER = re.compile(rb"(://|=iscsi:)[^/\s\"'@]{1,512}@")
WORDS = rb"(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|private)_?key)"
ASSIGNED = re.compile(
    rb"(?<![\w.-])([\w.-]{0,64}?(?:" + WORDS + rb"[\w.-]{0,64}|(?<!by)pass)=)[^\s,;&\"']+"
    rb"|(--[\w-]{0,64}?" + WORDS + rb"[ \t]+)[^\s\"'-][^\s\"']*"
    rb"|(\buser(?:name)?=[^\s,%]{1,256}%)[^\s,]+",
    re.IGNORECASE,
)
KERNEL_TEXTS = re.compile(r"/(?:cmdline|mounts|mountinfo|kmsg|dmesg(?:\.txt)?)$|^/var/log/")
BOOT_PASSWORD = re.compile(
    rb"^([ \t]*password\w*[ \t]+\S+[ \t]+)\S+|\bgrub\.pbkdf2\.\S+", re.MULTILINE
)
PAM_WORDS = frozenset({"DEFAULT", "OVERRIDE"})


def harmless(path: str, data: bytes, *, sets_variables: bool) -> bytes:
    """A file as a recording may hold it. Line numbers stay, and so does all that checks read."""
    if is_environ(path):
        return kept(data)
    if sets_variables:
        return by_lines(data, variables)
    if b"Environment" in data and UNIT.search(path):
        data = by_lines(data, unit)
    if path.startswith("/boot/"):
        data = BOOT_PASSWORD.sub(rb"\1hidden", data)
    if CONFIG.search(path):
        data = SECRET_KEY.sub(rb'\1"hidden"', data)
    if path.startswith(("/sys/", "/proc/")) and not KERNEL_TEXTS.search(path):
        return data
    return URL_USER.sub(rb"\1hidden@", ASSIGNED.sub(without_password, data))


def without_password(match: re.Match[bytes]) -> bytes:
    """What stands in front of it, and a word that is none."""
    return next(group for group in match.groups() if group) + HIDDEN.encode()


def by_lines(data: bytes, change: Callable[[str], str]) -> bytes:
    """Change each line together with those that a backslash joins to it."""
    text = data.decode("utf-8", "surrogateescape")
    done: list[str] = []
    joined: list[str] = []
    for line in text.split("\n"):
        joined.append(line)
        if not line.rstrip("\r").endswith("\\"):
            done.append(change("\n".join(joined)))
            joined = []
    done += [change("\n".join(joined))] if joined else []
    return "\n".join(done).encode("utf-8", "surrogateescape")


def variables(line: str) -> str:
    """A line of a script: nothing of it without a variable that matters, else all but the others.

    Lines that only export a name are kept, since they decide whether it is set for others.
    """
    if ALL_EXPORTED.match(line):
        return line
    if line.lstrip().startswith("#") or not any(map(matters, NAME.findall(line))):
        return "\n" * line.count("\n")
    line = SUBSTITUTED.sub("$(hidden)", COMMENT.sub("", line))
    return QUOTED.sub(hidden_word, set_pattern().sub(without_value, line))


def without_value(match: re.Match[str]) -> str:
    """NAME=hidden for what nobody asks for."""
    name = match["name"] or match["csh"]
    if matters(name) or name in PAM_WORDS:
        return match[0]
    return f"{name}={HIDDEN}" if match["name"] else f"setenv {name} {HIDDEN}"


def unit(line: str) -> str:
    """A line of a unit; Environment= keeps the variables that matter."""
    key = UNIT_KEY.match(line)
    return line[: key.end()] + WORD.sub(hidden_word, line[key.end() :]) if key else line


def hidden_word(match: re.Match[str]) -> str:
    """NAME=hidden in the same quotes."""
    name = next(group for group in match.groups() if group)
    quote = match[0][0] if match[0][0] in "\"'" else ""
    return match[0] if matters(name) else f"{quote}{name}={HIDDEN}{quote}"
