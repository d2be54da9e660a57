# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.limits import Limit
from gpuaudit.facts.manager import PROPERTIES, default_limits
from gpuaudit.host import NotApplicable, Unavailable

ARGV = ["systemctl", "show", f"--property={','.join(PROPERTIES)}"]
BOOTED = {"/run/systemd/system": None}


def systemctl(stdout: str, returncode: int = 0, stderr: str = "") -> list[dict[str, Any]]:
    output = {"returncode": returncode, "stdout": stdout, "stderr": stderr}
    return [{"argv": ARGV, "output": output}]


ANSWER = (
    "DefaultLimitNOFILE=524288\nDefaultLimitNOFILESoft=1024\n"
    "DefaultLimitMEMLOCK=infinity\nDefaultLimitMEMLOCKSoft=8388608\n"
)


def test_the_running_manager_and_the_next_boot(tmp_path: Path) -> None:
    tree = {**BOOTED, "/etc/systemd/system.conf.d/a.conf": "[Manager]\nDefaultLimitMEMLOCK=2G\n"}
    fact = default_limits(make_host(tmp_path, tree, commands=systemctl(ANSWER)))
    assert fact.running.memlock == Limit(8388608, None)
    assert fact.running.nofile == Limit(1024, 524288)
    assert fact.next_boot.memlock == Limit(2 << 30, 2 << 30)
    assert fact.next_boot.nofile == Limit(1024, 524288)
    assert fact.next_boot.evidence[0] == "/etc/systemd/system.conf.d/a.conf:2"


def test_old_systemctl_prints_infinity_as_a_number(tmp_path: Path) -> None:
    answer = ANSWER.replace("infinity", str(2**64 - 1)).replace("8388608", str(2**64 - 1))
    fact = default_limits(make_host(tmp_path, BOOTED, commands=systemctl(answer)))
    assert fact.running.memlock == Limit(None, None)


def test_without_configuration_the_built_in_default_holds(tmp_path: Path) -> None:
    fact = default_limits(make_host(tmp_path, BOOTED, commands=systemctl(ANSWER)))
    assert fact.next_boot.memlock == Limit(8 << 20, 8 << 20)
    assert fact.next_boot.evidence == ("systemd's built-in default",)


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        (None, "was not recorded"),
        (systemctl("", 1, "Failed to connect to bus"), "Failed to connect to bus"),
        (systemctl("DefaultLimitMEMLOCK=lots\n"), "no limit"),
    ],
)
def test_a_manager_that_does_not_answer(
    tmp_path: Path, commands: list[dict[str, Any]] | None, reason: str
) -> None:
    fact = default_limits(make_host(tmp_path, BOOTED, commands=commands))
    assert isinstance(fact.running.memlock, Absent)
    assert reason in fact.running.memlock.reason
    assert fact.running.memlock.kind == "failed"


def test_a_garbled_value_is_unknown_and_names_its_line(tmp_path: Path) -> None:
    tree = {**BOOTED, "/etc/systemd/system.conf": "[Manager]\n\nDefaultLimitMEMLOCK=unlimited\n"}
    found = default_limits(make_host(tmp_path, tree)).next_boot.memlock
    assert isinstance(found, Absent)
    assert "/etc/systemd/system.conf:3" in found.reason


def test_without_systemd_it_does_not_apply(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="systemd does not run"):
        default_limits(make_host(tmp_path, {}))


def test_not_recorded_is_not_absent(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="was not recorded"):
        default_limits(make_host(tmp_path, {}, source="plain"))


def test_an_image_has_a_next_boot_only(tmp_path: Path) -> None:
    tree = {"/etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=infinity\n"}
    fact = default_limits(make_host(tmp_path, tree, source="image"))
    assert fact.running.memlock == Absent("unsupported", "an image has no running kernel")
    assert fact.next_boot.memlock == Limit(None, None)


def test_configuration_that_was_not_recorded(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/run/systemd/system": None}, source="plain")
    found = default_limits(host).next_boot.memlock
    assert isinstance(found, Absent)
    assert found.kind == "failed"


def test_an_image_without_systemd_gets_no_limits_from_it(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="not installed"):
        default_limits(make_host(tmp_path, {"/etc/os-release": "ID=debian\n"}, source="image"))
