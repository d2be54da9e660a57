# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import Link, Tree, make_host

from gpuaudit.facts import systemd
from gpuaudit.facts.limits import Limit
from gpuaudit.facts.systemd import Setting, config, parse, parse_limit, unit
from gpuaudit.host import Unavailable


def setting(value: str) -> Setting:
    return Setting(section="Service", key="LimitMEMLOCK", value=value, where="x:1")


def values(text: str) -> list[tuple[str, str, str, str]]:
    return [(s.section, s.key, s.value, s.where) for s in parse(text, "f") if s.key]


def test_syntax() -> None:
    text = (
        "\ufeff# comment\r\n; another\r\n\r\n  [Service]  \r\nA = 1 \r\nnonsense\r\n"
        "ExecStart=/bin/x \\\r\n# inside\r\n  --flag \\\r\n\r\nB=\r\n[Install]\r\nC==d\r\nE=tail\\"
    )
    assert values(text) == [
        ("Service", "A", "1", "f:5"),
        ("Service", "ExecStart", "/bin/x  --flag", "f:7"),
        ("Service", "B", "", "f:11"),
        ("Install", "C", "=d", "f:13"),
        ("Install", "E", "tail", "f:14"),
    ]


def test_an_assignment_outside_a_section_is_none() -> None:
    assert values("A=1\n[]\nB=2\n") == []


def test_an_empty_section_is_seen() -> None:
    assert [s.section for s in parse("[zram0]\n[zram1]\n", "f")] == ["zram0", "zram1"]


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    for found in parse(f"[S]\n{text}\nLimitMEMLOCK={text}", "f"):
        with suppress(Unavailable):
            parse_limit(found)


@given(st.text(alphabet="0123456789.:KMGTPEB infinity-+", max_size=40))
def test_a_limit_is_a_limit_or_unavailable(text: str) -> None:
    with suppress(Unavailable):
        limit = parse_limit(setting(text))
        assert limit.hard is None or (limit.soft is not None and 0 <= limit.soft <= limit.hard)


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ("infinity", Limit(None, None)),
        ("64M", Limit(64 << 20, 64 << 20)),
        ("64MB", Limit(64 << 20, 64 << 20)),
        ("1.5K", Limit(1536, 1536)),
        ("8388608", Limit(8388608, 8388608)),
        ("1G:infinity", Limit(1 << 30, None)),
        ("1E", Limit(1 << 60, 1 << 60)),
    ],
)
def test_limits(value: str, limit: Limit) -> None:
    assert parse_limit(setting(value)) == limit


@pytest.mark.parametrize(
    "value", ["unlimited", "-1", "1G:1M", "infinity:1", "1:2:3", "64X", "99E", "1" * 25, ":", "٣"]
)
def test_what_is_no_limit_names_its_line(value: str) -> None:
    with pytest.raises(Unavailable, match=r"x:1: LimitMEMLOCK=") as raised:
        parse_limit(setting(value))
    assert raised.value.kind == "garbled"


def test_counts_take_no_suffix() -> None:
    assert parse_limit(setting("1024:524288"), of_bytes=False) == Limit(1024, 524288)
    with pytest.raises(Unavailable, match="no limit"):
        parse_limit(setting("64K"), of_bytes=False)


def test_drop_ins_of_the_configuration(tmp_path: Path) -> None:
    tree: Tree = {
        "/etc/systemd/system.conf": "[Manager]\nA=etc\n",
        "/usr/lib/systemd/system.conf": "[Manager]\nA=not read\n",
        "/usr/lib/systemd/system.conf.d/50-a.conf": "[Manager]\nA=hidden by etc\n",
        "/etc/systemd/system.conf.d/50-a.conf": "[Manager]\nA=fifty\n",
        "/usr/lib/systemd/system.conf.d/90-b.conf": "[Manager]\nA=ninety\n",
        "/etc/systemd/system.conf.d/95-c.conf": Link("/dev/null"),
        "/usr/lib/systemd/system.conf.d/95-c.conf": "[Manager]\nA=masked\n",
        "/etc/systemd/system.conf.d/99-not-read": "[Manager]\nA=no suffix\n",
        "/run/systemd/system.conf.d/99-gone.conf": "[Manager]\nA=gone at boot\n",
        "/dev/null": "",
    }
    settings = config(make_host(tmp_path, tree), "system.conf")
    assert [s.value for s in settings if s.key] == ["etc", "fifty", "ninety"]
    last = systemd.last(settings, "Manager", "A")
    assert last is not None
    assert last.where == "/usr/lib/systemd/system.conf.d/90-b.conf:2"


def test_an_empty_value_does_not_decide() -> None:
    settings = parse("[Service]\nLimitMEMLOCK=1G\nLimitMEMLOCK=\n", "f")
    last = systemd.last(settings, "Service", "LimitMEMLOCK")
    assert last is not None
    assert last.value == "1G"
    assert systemd.last(settings, "Service", "LimitNOFILE") is None


def test_no_configuration_at_all(tmp_path: Path) -> None:
    assert config(make_host(tmp_path, {}), "system.conf") == ()


def test_configuration_that_was_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="was not recorded"):
        config(make_host(tmp_path, {}, source="plain"), "system.conf")


def test_drop_ins_of_a_unit_in_order(tmp_path: Path) -> None:
    body = "[Service]\nA="
    tree: Tree = {
        "/usr/lib/systemd/system/a-b-c.service": f"{body}unit\n",
        "/etc/systemd/system/a-b-c.service.d/20-x.conf": f"{body}20 of the unit\n",
        "/etc/systemd/system/a-b-.service.d/20-x.conf": f"{body}20 of a prefix\n",
        "/usr/lib/systemd/system/a-.service.d/30-x.conf": f"{body}30 of a shorter prefix\n",
        "/etc/systemd/system/service.d/10-x.conf": f"{body}10 of the type\n",
        "/etc/systemd/system/service.d/30-x.conf": f"{body}hidden\n",
        "/usr/lib/systemd/system/a-b-c.service.d/15-x.conf": f"{body}15 of the vendor\n",
    }
    found = unit(make_host(tmp_path, tree), "a-b-c.service")
    assert found is not None
    assert [s.value for s in found.settings if s.key] == [
        "unit",
        "10 of the type",
        "15 of the vendor",
        "20 of the unit",
        "30 of a shorter prefix",
    ]


def test_etc_hides_the_vendors_unit(tmp_path: Path) -> None:
    tree: Tree = {
        "/etc/systemd/system/x.service": "[Service]\nA=etc\n",
        "/lib/systemd/system/x.service": "[Service]\nA=lib\n",
    }
    found = unit(make_host(tmp_path, tree), "x.service")
    assert found is not None
    assert (found.path, [s.value for s in found.settings if s.key]) == (
        "/etc/systemd/system/x.service",
        ["etc"],
    )


def test_drop_ins_of_an_alias_and_of_its_real_name(tmp_path: Path) -> None:
    tree: Tree = {
        "/etc/systemd/system/sshd.service": Link("/usr/lib/systemd/system/ssh.service"),
        "/usr/lib/systemd/system/ssh.service": "[Service]\nA=unit\n",
        "/etc/systemd/system/ssh.service.d/a.conf": "[Service]\nA=real\n",
        "/etc/systemd/system/sshd.service.d/b.conf": "[Service]\nA=alias\n",
    }
    found = unit(make_host(tmp_path, tree), "sshd.service")
    assert found is not None
    assert [s.value for s in found.settings if s.key] == ["unit", "real", "alias"]


@pytest.mark.parametrize("content", ["", Link("/dev/null")])
def test_a_masked_unit(tmp_path: Path, content: str | Link) -> None:
    tree: Tree = {
        "/etc/systemd/system/x.service": content,
        "/lib/systemd/system/x.service": "[Service]\nA=lib\n",
    }
    found = unit(make_host(tmp_path, tree, source="image"), "x.service")
    assert found is not None
    assert found.masked
    assert found.settings == ()


def test_a_unit_that_is_a_script(tmp_path: Path) -> None:
    tree: Tree = {
        "/etc/init.d/slurmd": "#!/bin/sh\n",
        "/etc/systemd/system/slurmd.service.d/x.conf": "[Service]\nLimitMEMLOCK=infinity\n",
    }
    found = unit(make_host(tmp_path, tree), "slurmd.service")
    assert found is not None
    last = found.last("Service", "LimitMEMLOCK")
    assert last is not None
    assert last.value == "infinity"


def test_no_unit(tmp_path: Path) -> None:
    assert unit(make_host(tmp_path, {"/etc/systemd/system": None}), "x.service") is None


def test_a_unit_that_was_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="was not recorded"):
        unit(make_host(tmp_path, {}, source="plain"), "x.service")
