# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import Source, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.limits import Limit, Reading
from gpuaudit.facts.pam import (
    LoginLimits,
    decided,
    has_pam_limits,
    laid,
    login_limits,
    parse_limits_conf,
    uses_pam,
)
from gpuaudit.host import Unavailable

SMALL = Limit(8 << 20, 8 << 20)
SSHD = JobDaemons(
    contexts={
        "sshd": (
            Reading(subject="sshd", memlock=SMALL, nofile=Limit(1024, 4096), now=True),
            Reading(subject="ssh.service", memlock=SMALL, nofile=Limit(1024, 4096), now=False),
        )
    }
)
STACK = {
    "/etc/ssh/sshd_config": "Port 22\nUsePAM yes\n",
    "/etc/pam.d/sshd": "session required pam_limits.so\n",
}
CONF, FOLDER = "/etc/security/limits.conf", "/etc/security/limits.d"


def read(folder: Path, tree: Tree, source: Source = "snapshot") -> LoginLimits:
    return login_limits(make_host(folder, tree, source=source), SSHD)


def first(fact: LoginLimits) -> Reading:
    assert isinstance(fact.readings, tuple)
    return fact.readings[0]


def lay(text: str) -> Limit | Absent:
    return laid(SMALL, list(parse_limits_conf(text, "f")), "memlock")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", SMALL),
        ("* - memlock unlimited", Limit(None, None)),
        ("* soft memlock infinity\n* hard memlock -1", Limit(None, None)),
        ("*\tHARD\tMEMLOCK\tUNLIMITED\r\n", Limit(8 << 20, None)),
        ("* soft memlock unlimited", SMALL),
        ("* hard memlock 64", Limit(65536, 65536)),
        ("* - memlock 64M", Limit(65536, 65536)),
        ("* - memlock unlimited\n* - memlock 1024", Limit(1 << 20, 1 << 20)),
        ("1000: - memlock unlimited\n* - memlock 64", Limit(None, None)),
        ("* - memlock 64 # low\n# * - memlock unlimited", Limit(65536, 65536)),
        ("* both memlock unlimited\n* - memlock\n* - nofile 5", SMALL),
    ],
)
def test_the_line_that_decides(text: str, limit: Limit) -> None:
    assert lay(text) == limit


def test_a_garbled_value_is_unknown_and_names_its_line() -> None:
    found = lay("* - memlock 64\n* - memlock lots")
    assert isinstance(found, Absent)
    assert "f:2" in found.reason


def test_a_garbled_value_that_is_overruled_does_not_matter() -> None:
    assert lay("* - memlock lots\n* - memlock unlimited") == Limit(None, None)


@given(st.text(), st.text())
def test_no_text_breaks_the_parser(text: str, value: str) -> None:
    entries = parse_limits_conf(f"{text}\n* - memlock {value}\n* {text}", "f")
    with suppress(Unavailable):
        decided(list(entries), "memlock", "soft")


def test_files_are_read_in_order(tmp_path: Path) -> None:
    tree = {
        **STACK,
        CONF: "* - memlock 1\n",
        f"{FOLDER}/20.conf": "* - memlock unlimited\n",
        f"{FOLDER}/10.conf": "* - memlock 2\n",
        f"{FOLDER}/99.txt": "* - memlock 3\n",
    }
    fact = read(tmp_path, tree)
    assert first(fact).memlock == Limit(None, None)
    assert first(fact).evidence == (f"{CONF}:1", f"{FOLDER}/10.conf:1", f"{FOLDER}/20.conf:1")


def test_both_now_and_the_next_boot(tmp_path: Path) -> None:
    fact = read(tmp_path, {**STACK, CONF: "* - memlock unlimited\n"})
    assert isinstance(fact.readings, tuple)
    assert [(r.subject, r.memlock) for r in fact.readings] == [
        ("SSH login", Limit(None, None)),
        ("SSH login at the next boot", Limit(None, None)),
    ]


@pytest.mark.parametrize("domain", ["root", "@hpc", "bob", "1005:1010", "5000:", ":1000", "@100:"])
def test_lines_for_some_are_named_and_do_not_decide(tmp_path: Path, domain: str) -> None:
    fact = read(tmp_path, {**STACK, CONF: f"{domain} - memlock unlimited\n"})
    assert first(fact).memlock == SMALL
    assert first(fact).evidence == (f"not for every user: {CONF}:1",)


@pytest.mark.parametrize(
    "change",
    [
        {"/etc/ssh/sshd_config": "UsePAM no\n"},
        {"/etc/ssh/sshd_config": "Port 22\n"},
        {"/etc/pam.d/sshd": "auth required pam_limits.so\nsession required pam_unix.so\n"},
    ],
)
def test_without_pam_limits_the_files_have_no_effect(tmp_path: Path, change: Tree) -> None:
    fact = read(tmp_path, {**STACK, CONF: "* - memlock unlimited\n", **change})
    assert first(fact).memlock == SMALL
    assert "no effect" in first(fact).evidence[-1]


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ({"/etc/pam.d/sshd": "-session [success=1 default=ignore] pam_limits.so conf=/x\n"}, True),
        ({"/etc/pam.d/sshd": "session required /lib/security/pam_limits.so\n"}, True),
        (
            {"/etc/pam.d/sshd": "@include common\n", "/etc/pam.d/common": "session optional x.so"},
            False,
        ),
        (
            {
                "/etc/pam.d/sshd": "session include password-auth\r\n",
                "/etc/pam.d/password-auth": "session required pam_limits.so\r\n",
            },
            True,
        ),
        ({"/usr/lib/pam.d/sshd": "session required pam_limits.so\n"}, True),
        ({"/etc/pam.d/sshd": "#session required pam_limits.so\nsession\n"}, False),
        ({"/etc/pam.d/sshd": "session include sshd\n"}, False),
        ({"/etc/pam.d/sshd": "session include gone\n"}, False),
    ],
)
def test_the_session_stack(tmp_path: Path, tree: Tree, found: bool) -> None:
    assert has_pam_limits(make_host(tmp_path, tree), "sshd") is found


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ({"/etc/ssh/sshd_config": "# UsePAM yes\nUSEPAM=Yes\n"}, True),
        ({"/etc/ssh/sshd_config": "UsePAM no\nUsePAM yes\n"}, False),
        ({"/etc/ssh/sshd_config": "Match User x\nUsePAM yes\n"}, False),
        (
            {
                "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM no\n",
                "/etc/ssh/sshd_config.d/50.conf": "UsePAM yes\n",
            },
            True,
        ),
        ({"/etc/ssh/sshd_config": "Include x.conf\n", "/etc/ssh/x.conf": "UsePAM yes\n"}, True),
        ({"/usr/etc/ssh/sshd_config": "UsePAM yes\n"}, True),
        ({"/etc/ssh/sshd_config": "Include sshd_config\n"}, False),
        ({}, False),
    ],
)
def test_use_pam(tmp_path: Path, tree: Tree, found: bool) -> None:
    assert uses_pam(make_host(tmp_path, tree)) is found


def test_what_was_not_recorded_is_unknown(tmp_path: Path) -> None:
    found = first(read(tmp_path, {}, "plain")).memlock
    assert isinstance(found, Absent)
    assert "was not recorded" in found.reason


def test_no_sshd(tmp_path: Path) -> None:
    absent = Absent("unsupported", "sshd is not part of this node")
    fact = login_limits(make_host(tmp_path, {}), JobDaemons(contexts={"sshd": absent}))
    assert fact.readings is absent


def test_limits_of_sshd_that_are_unknown_stay_so_unless_both_are_set(tmp_path: Path) -> None:
    why = Absent("denied", "needs root")
    unknown = Reading(subject="sshd", memlock=why, nofile=why, now=True)
    daemons = JobDaemons(contexts={"sshd": (unknown,)})
    host = make_host(tmp_path / "a", {**STACK, CONF: "* hard memlock unlimited\n"})
    assert first(login_limits(host, daemons)).memlock is why
    host = make_host(tmp_path / "b", {**STACK, CONF: "* - memlock unlimited\n"})
    assert first(login_limits(host, daemons)).memlock == Limit(None, None)
