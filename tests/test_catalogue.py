# SPDX-License-Identifier: Apache-2.0
"""Every check keeps the house's shape, and every expectation has a value with a reason."""

import re
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from gpuaudit import packs
from gpuaudit.catalogue import problems, what_to_do
from gpuaudit.check import Expectations
from gpuaudit.facts.base import PROBES, Fact
from gpuaudit.host import Host
from gpuaudit.policy import load_policies
from gpuaudit.policy.profiles import chosen, load_profiles, named

CHECKS = dict(packs.load_checks(plugins=False))
SECTIONS = packs.sections(CHECKS)
REQUIRED_AT_LEAST = 110


@pytest.mark.parametrize("check_id", sorted(CHECKS))
def test_documentation_keeps_the_shape(check_id: str) -> None:
    assert problems(CHECKS[check_id]) == []


@pytest.mark.parametrize("check_id", sorted(CHECKS))
def test_advice_fits_beside_a_finding(check_id: str) -> None:
    advice = what_to_do(CHECKS[check_id])
    assert advice is not None
    assert len(advice) <= 400, advice
    assert not advice.endswith("!")


@pytest.mark.parametrize("check_id", sorted(CHECKS))
def test_every_parameter_can_be_supplied(check_id: str) -> None:
    for kind in CHECKS[check_id].needs:
        assert issubclass(kind, Expectations) or kind in PROBES, kind


@pytest.mark.parametrize("kind", sorted(PROBES, key=str))
def test_every_fact_names_its_origin(kind: type) -> None:
    assert issubclass(kind, Fact)
    assert kind.__doc__
    for name, hint in PROBES[kind].__annotations__.items():
        assert name == "return" or hint is Host or hint in PROBES


def test_there_are_enough_checks_and_no_title_stands_twice() -> None:
    titles = [one.title for one in CHECKS.values()]
    assert len(CHECKS) >= REQUIRED_AT_LEAST
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_the_base_policy_has_a_value_for_every_field(section: str) -> None:
    policy = load_policies(SECTIONS, site=False).for_node(())
    record = policy.expectations(SECTIONS[section])
    for field in msgspec.structs.fields(SECTIONS[section]):
        assert field.required, f"{section}.{field.name}: values belong in base.yaml, not in code"
        assert (policy.source(section, field.name) or "").startswith("base.yaml:")
    assert record is not None


@pytest.mark.parametrize("layer", ["base", "skus"])
def test_every_policy_file_names_only_checks_that_exist(layer: str) -> None:
    policies = load_policies(SECTIONS, site=False)
    for one in (policies.base,) if layer == "base" else policies.skus:
        assert set(one.document.skip) <= set(CHECKS), one.name


def test_every_sku_file_gives_valid_expectations() -> None:
    policies = load_policies(SECTIONS, site=False)
    assert len(policies.skus) >= 8
    for layer in policies.skus:
        ids = layer.document.match.pci_ids if layer.document.match else ("10de:ffff",)
        policy = policies.for_node(ids[:1])
        for kind in SECTIONS.values():
            policy.expectations(kind)


def test_no_two_sku_files_claim_one_gpu() -> None:
    claimed: dict[str, str] = {}
    for layer in load_policies(SECTIONS, site=False).skus:
        for pci_id in layer.document.match.pci_ids if layer.document.match else ():
            assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", pci_id), f"{layer.name}: {pci_id}"
            assert pci_id not in claimed, f"{pci_id}: {claimed[pci_id]} and {layer.name}"
            claimed[pci_id] = layer.name


def test_every_value_of_the_base_policy_has_a_reason() -> None:
    text = (resources.files("gpuaudit.policy") / "base.yaml").read_text()
    bare = []
    commented = False
    for line in text.splitlines():
        if line.strip().startswith("#"):
            commented = True
        elif re.match(r"    [a-z]", line):
            if not commented and "#" not in line:
                bare.append(line.strip())
            commented = False
    assert bare == []


@pytest.mark.parametrize("name", ["preflight", "bringup", "nightly", "image"])
def test_profiles_name_checks_that_exist(name: str) -> None:
    profile = load_profiles()[name]
    assert chosen(CHECKS, profile)
    for word in (*profile.include, *profile.exclude, *profile.required):
        assert any(named(check_id, [word]) for check_id in CHECKS), word


@pytest.mark.tree
def test_every_check_module_has_tests() -> None:
    here = Path(__file__).parent
    for one in CHECKS.values():
        subject = one.function.__module__.rpartition(".")[2].partition("_")[0]
        files = (here / "checks").glob(f"test_{subject}*.py")
        text = "\n".join(file.read_text() for file in files)
        assert re.search(rf"\b{one.function.__name__}\b|{one.id}", text), one.id
