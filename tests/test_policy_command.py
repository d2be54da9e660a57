# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest
from fakenode import healthy_node
from trees import make_host

from gpuaudit import cli

HEAD = "policy: 1\nexpect:\n"


def call(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(args))
    return int(ended.value.code or 0)


@pytest.fixture
def node(tmp_path: Path) -> str:
    return str(healthy_node().archive(tmp_path / "node.tar.gz"))


def test_show_names_the_file_and_line_of_every_value(
    capsys: pytest.CaptureFixture[str], node: str, tmp_path: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(HEAD + "  memory:\n    swap: any\n")
    assert call("policy", "show", "--snapshot", node, "--policy", str(site)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Files, the last one wins: base.yaml, skus/h100.yaml, {site}\n")
    rows = {line.split()[0]: line.split()[-1] for line in shown.splitlines()[1:]}
    assert rows["memory.swap"] == f"{site}:4"
    assert rows["ecc.enabled"].startswith("skus/h100.yaml:")
    assert rows["memory.thp_enabled"].startswith("base.yaml:")


def test_the_line_shown_is_the_line_of_the_value(
    capsys: pytest.CaptureFixture[str], node: str
) -> None:
    assert call("policy", "show", "--snapshot", node, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sku"] == "h100"
    assert [file["path"] for file in document["files"]] == ["base.yaml", "skus/h100.yaml"]
    home = Path(cli.__file__).parents[1] / "policy"
    for value in document["values"]:
        name, _, line = value["source"].rpartition(":")
        text = (home / name).read_text().splitlines()[int(line) - 1]
        assert text.strip().startswith(f"{value['field']}:")


def test_without_gpus_no_sku_file_counts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_host(tmp_path / "cpu", {"/sys/bus/pci/devices": None})
    assert call("policy", "show", "--snapshot", str(tmp_path / "cpu"), "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["sku"], [f["path"] for f in document["files"]]) == (None, ["base.yaml"])


def test_show_works_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("policy", "show") == 0
    assert "memory.swap" in capsys.readouterr().out


def test_check_says_good(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        HEAD + '  memory:\n    thp_enabled: [madvise]\nskip:\n  cpu-smt: "the BIOS is locked"\n'
    )
    assert call("policy", "check", str(site)) == 0
    assert capsys.readouterr().out == f"{site}: good\n"


WRONG = {
    "an unknown section": (HEAD + "  memroy:\n    swap: any\n", 3, "did you mean memory"),
    "an unknown section unlike any": (HEAD + "  zzz: {}\n", 3, "allowed: acs, "),
    "an unknown key": (
        HEAD + "  memory:\n    swop: any\n",
        4,
        "expect.memory.swop: unknown key; did you mean swap",
    ),
    "an unknown key at the top": (
        "policy: 1\nexpected: {}\n",
        2,
        "unknown key; did you mean expect",
    ),
    "a key of another level": ("policy: 1\nmatch:\n  pci: []\n", 3, "match.pci: unknown key"),
    "a word that is not allowed": (
        HEAD + "  memory:\n    swap: some\n",
        4,
        "expect.memory.swap: invalid enum value 'some'; allowed: none, any",
    ),
    "a word in a list": (
        HEAD + "  memory:\n    thp_enabled:\n      - always\n      - sometimes\n",
        6,
        "thp_enabled.1: invalid enum value 'sometimes'; allowed: always, madvise, never",
    ),
    "a word where a list is wanted": (
        HEAD + "  memory:\n    thp_enabled: always\n",
        4,
        "got text; allowed: a list of always, madvise, never",
    ),
    "a truth value for a word": (
        HEAD + "  memory:\n    swap: off\n",
        4,
        "got a truth value; allowed: none, any; YAML reads a bare on, off, yes or no as a",
    ),
    "a truth value in a list of words": (
        HEAD + "  memory:\n    thp_enabled:\n    - always\n    - no\n",
        6,
        "put quotes around it",
    ),
    "a word for a truth value": (
        HEAD + "  gpu_modes:\n    persistence: 'on'\n",
        4,
        "got text; allowed: true or false",
    ),
    "a unit": (
        HEAD + "  cpu:\n    max_idle_latency_us: 300us\n",
        4,
        "allowed: 0 to 100000; write the number alone, the unit is in the name of the key",
    ),
    "a unit where a word fits too": (
        HEAD + "  limits:\n    memlock_gib: 64 GiB\n",
        4,
        "allowed: unlimited or 1 to 1048576; write the number alone",
    ),
    "a number that is impossible": (
        HEAD + "  cpu_frequency:\n    min_allowed_percent: 195\n",
        4,
        "expected a whole number <= 100; allowed: 1 to 100",
    ),
    "a negative number": (HEAD + "  ecc:\n    volatile_uncorrected_max: -1\n", 4, ">= 0"),
    "a fraction": (
        HEAD + "  cpu:\n    max_offline_cpus: 0.5\n",
        4,
        "expected a whole number, got a number",
    ),
    "no value": (HEAD + "  memory:\n    swap:\n", 4, "got nothing; allowed: none, any"),
    "a dict value": (
        HEAD + '  pcie:\n    wired_width_by_id:\n      "10de:2237": 8\n      "10de:1eb8": 7x\n',
        6,
        "expect.pcie.wired_width_by_id.10de:1eb8: ",
    ),
    "a dict key": (
        HEAD + '  pcie:\n    wired_width_by_id:\n      "10de:2237": 8\n      T4: 8\n',
        6,
        "expect.pcie.wired_width_by_id.T4: ",
    ),
    "a section that is no mapping": (
        HEAD + "  memory: 3\n",
        3,
        "expect.memory: expected a mapping",
    ),
    "a list of the wrong thing": (
        "policy: 1\nmatch:\n  pci_ids:\n  - '10de:2330'\n  - 7\n",
        5,
        "match.pci_ids.1:",
    ),
    "a duplicate key": (
        HEAD + "  memory:\n    swap: any\n    swap: none\n",
        5,
        "the key swap stands twice",
    ),
    "a duplicate section": (
        HEAD + "  memory: {}\n  memory: {}\n",
        4,
        "the key memory stands twice",
    ),
    "broken YAML": (HEAD + "  memory: [\n", 4, "not valid YAML"),
    "a tab": (HEAD + "\tmemory: {}\n", 3, "not valid YAML"),
    "two documents": ("policy: 1\n---\npolicy: 1\n", 2, "not valid YAML"),
    "a date that is none": (HEAD + "  memory:\n    swap: 2026-13-45\n", 4, "not valid YAML"),
    "another version": ("# x\npolicy: 2\n", 2, "this release reads version 1"),
    "no version": ("expect: {}\n", 1, "missing required field `policy`"),
    "no mapping": ("- policy\n", 1, "a policy file is a mapping"),
    "nothing": ("", 1, "a policy file is a mapping"),
    "a skip of no check": ("policy: 1\nskip:\n  cpu-smtt: x\n", 3, "did you mean cpu-smt"),
    "a skip without a reason": ("policy: 1\nskip:\n  cpu-smt: ''\n", 3, "say why"),
    "a tag": (HEAD + "  memory:\n    swap: !!python/name:os.system x\n", 4, "not valid YAML"),
    "a key that is no word": (HEAD + "  ? [a]\n  : 1\n", 3, "a key must be a word"),
}


@pytest.mark.parametrize(("text", "line", "says"), WRONG.values(), ids=WRONG)
def test_check_names_file_line_and_what_is_allowed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, line: int, says: str
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(text)
    assert call("policy", "check", str(site)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gpuaudit: {site}:{line}: ")
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "a: " * 5 + "\n",
        "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
        + "".join(
            f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
            for old, new in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "a: &a\n  b: *a\n",
        "\x00",
        "\xff" * 10,
    ],
    ids=["deep", "bad", "aliases of aliases", "an alias of itself", "a NUL", "no text"],
)
def test_a_hostile_file_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    site = tmp_path / "site.yaml"
    site.write_bytes(text.encode("latin-1"))
    assert call("policy", "check", str(site)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gpuaudit: {site}:")
    assert error.count("\n") == 1


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call("policy", "check", str(tmp_path / "none.yaml")) == 2
    assert "none.yaml: No such file or directory" in capsys.readouterr().err


def test_from_writes_a_draft_that_check_accepts(
    capsys: pytest.CaptureFixture[str], node: str, tmp_path: Path
) -> None:
    site = str(tmp_path / "site.yaml")
    assert call("policy", "from", node, "-o", site) == 0
    assert call("policy", "check", site) == 0
    assert call("run", "--snapshot", node, "--policy", site, "--profile", "bringup") == 0
    assert "expected_count: 8" in Path(site).read_text()
    assert call("policy", "from", node, "-o", site) == 2
    assert "exists already" in capsys.readouterr().err


def test_from_prints_without_an_output(capsys: pytest.CaptureFixture[str], node: str) -> None:
    assert call("policy", "from", node) == 0
    assert capsys.readouterr().out.startswith("# Drafted by gpuaudit ")


def test_from_refuses_what_is_no_recording(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call("policy", "from", str(tmp_path / "none.tar.gz")) == 2
    assert capsys.readouterr().err.count("\n") == 1
