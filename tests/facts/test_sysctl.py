# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.sysctl import SysctlFiles, dotted, sysctl_files
from gpuaudit.host import Unavailable

KEY = "vm.swappiness"
SYSTEMD = {"/usr/lib/systemd/systemd-sysctl": "\x7fELF"}


def read(folder: Path, tree: Tree, **more: Any) -> SysctlFiles:
    return sysctl_files(make_host(folder, {**SYSTEMD, **tree}, **more))


def effective(folder: Path, tree: Tree, **more: Any) -> tuple[str, str, int] | None:
    found = read(folder, tree, **more).effective(KEY)
    return (found.value, found.file, found.line) if found else None


@pytest.mark.parametrize(
    ("tree", "winner"),
    [
        pytest.param(
            {"/usr/lib/sysctl.d/99-z.conf": f"{KEY}=1", "/etc/sysctl.d/10-a.conf": f"{KEY}=2"},
            ("1", "/usr/lib/sysctl.d/99-z.conf", 1),
            id="the-name-counts-not-the-folder",
        ),
        pytest.param(
            {"/usr/lib/sysctl.d/50-a.conf": f"{KEY}=1", "/etc/sysctl.d/50-a.conf": f"{KEY}=2"},
            ("2", "/etc/sysctl.d/50-a.conf", 1),
            id="etc-hides-a-file-of-its-name",
        ),
        pytest.param(
            {"/usr/lib/sysctl.d/50-a.conf": f"{KEY}=1", "/etc/sysctl.d/50-a.conf": ""},
            None,
            id="an-empty-file-hides-too",
        ),
        pytest.param(
            {"/usr/lib/sysctl.d/50-a.conf": f"{KEY}=1", "/run/sysctl.d/50-a.conf": f"{KEY}=3"},
            ("3", "/run/sysctl.d/50-a.conf", 1),
            id="run-hides-usr",
        ),
        pytest.param(
            {
                "/usr/lib/sysctl.d/50-a.conf": f"{KEY}=1",
                "/etc/sysctl.d/50-a.conf": Link("/dev/null"),
                "/dev/null": "",
            },
            None,
            id="a-link-to-null-masks",
        ),
        pytest.param(
            {"/etc/sysctl.d/50-a.conf": f"# why\n\n; {KEY} = 9\n-{KEY} =  4 \nvm/swappiness=5\n"},
            ("5", "/etc/sysctl.d/50-a.conf", 5),
            id="comments-prefix-slashes-last-line",
        ),
        pytest.param(
            {
                "/etc/sysctl.conf": f"{KEY}=7",
                "/etc/sysctl.d/99-sysctl.conf": Link("../sysctl.conf"),
            },
            ("7", "/etc/sysctl.d/99-sysctl.conf", 1),
            id="sysctl.conf-by-its-link",
        ),
        pytest.param({"/etc/sysctl.conf": f"{KEY}=7"}, None, id="systemd-ignores-sysctl.conf"),
        pytest.param({"/etc/sysctl.d/readme": f"{KEY}=7"}, None, id="other-names"),
    ],
)
def test_precedence(tmp_path: Path, tree: Tree, winner: tuple[str, str, int] | None) -> None:
    assert effective(tmp_path, tree) == winner


def test_without_systemd_sysctl_conf_is_last(tmp_path: Path) -> None:
    tree = {"/etc/sysctl.conf": f"{KEY}=7", "/etc/sysctl.d/99-z.conf": f"{KEY}=1"}
    found = sysctl_files(make_host(tmp_path, tree)).effective(KEY)
    assert found is not None
    assert (found.value, found.file) == ("7", "/etc/sysctl.conf")


def test_an_assignment_beats_a_glob(tmp_path: Path) -> None:
    text = (
        "net.ipv4.conf.eth0.rp_filter=2\nnet.ipv4.conf.*.rp_filter=1\n-net.ipv4.conf.lo.rp_filter\n"
    )
    found = read(tmp_path, {"/etc/sysctl.d/a.conf": text})
    values = {
        name: setting.value if setting else None
        for name in ("eth0", "eth1", "lo", "a.b")
        for setting in [found.effective(f"net.ipv4.conf.{name}.rp_filter")]
    }
    assert values == {"eth0": "2", "eth1": "1", "lo": None, "a.b": None}


def test_an_image_tells_what_its_next_boot_will_set(tmp_path: Path) -> None:
    tree = {"/etc/sysctl.d/50-a.conf": f"{KEY}=2"}
    assert effective(tmp_path, tree, source="image") == ("2", "/etc/sysctl.d/50-a.conf", 1)


def test_folders_that_were_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        read(tmp_path, {}, source="plain")


def test_two_spellings_of_a_key() -> None:
    assert dotted("net/ipv4/conf/eth0.7/rp_filter") == "net.ipv4.conf.eth0/7.rp_filter"
    assert dotted("net.ipv4.conf.eth0/7.rp_filter") == "net.ipv4.conf.eth0/7.rp_filter"
