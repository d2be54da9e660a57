# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge

from gpuaudit.facts.dimms import Dimm, Dimms

GOOD = Dimm("A1", 65536, 2, 5600, 5600, 1, "A")


def slots(*dimms: Dimm) -> Dimms:
    return Dimms(slots=dimms)


def on_channels(*modules: int) -> Dimms:
    """So many modules in each channel, which has two slots."""
    found = []
    for number, filled in enumerate(modules):
        for place in range(2):
            size = 65536 if place < filled else 0
            found.append(
                GOOD._replace(slot=f"{number}{place}", channel=f"C{number}", size_mib=size)
            )
    return slots(*found)


def in_slots(filled: int, total: int, arrays: int = 1) -> Dimms:
    """Slots that tell no channel, the first ones filled, spread over arrays."""
    per_array = total // arrays
    return slots(
        *(
            GOOD._replace(
                slot=f"DIMM {n}", channel="", size_mib=65536 * (n < filled), array=n // per_array
            )
            for n in range(total)
        )
    )


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, ["pass", "pass"]),
        ({"size_mib": 32768}, ["warn", "pass"]),
        ({"rank": 1}, ["pass", "warn"]),
        ({"size_mib": None}, ["unknown", "pass"]),
        ({"rank": None}, ["pass", "unknown"]),
    ],
)
def test_alike(change: dict[str, Any], verdicts: list[str]) -> None:
    dimms = slots(GOOD, GOOD._replace(slot="A2"), GOOD._replace(slot="A3", **change))
    findings = judge("memory_hardware/memory-dimm-alike", dimms)
    assert [f.verdict.value for f in findings] == verdicts


def test_the_one_that_differs_is_named() -> None:
    odd = GOOD._replace(slot="B1", size_mib=32768)
    finding = judge(
        "memory_hardware/memory-dimm-alike", slots(GOOD, GOOD._replace(slot="A2"), odd)
    )[0]
    assert finding.message == "they differ; 32 GiB is in B1"
    assert finding.observed == "2 x 64 GiB, 1 x 32 GiB"


def test_firmware_without_ranks_is_not_held_to_them() -> None:
    (finding,) = judge("memory_hardware/memory-dimm-alike", slots(GOOD._replace(rank=None)))
    assert finding.verdict.value == "pass"


@pytest.mark.parametrize(
    ("dimms", "verdict"),
    [
        (on_channels(2, 2, 2, 2), "pass"),
        (on_channels(1, 1, 1, 1), "pass"),
        (on_channels(1, 1, 1, 0), "warn"),
        (on_channels(2, 2, 2, 1), "warn"),
        (in_slots(32, 32), "pass"),
        (in_slots(16, 32), "pass"),
        (in_slots(24, 32), "warn"),
        (in_slots(31, 32), "warn"),
        (in_slots(16, 32, arrays=2), "warn"),
        (in_slots(32, 32, arrays=2), "pass"),
    ],
)
def test_population(dimms: Dimms, verdict: str) -> None:
    (finding,) = judge("memory_hardware/memory-dimm-population", dimms)
    assert finding.verdict.value == verdict


def test_an_empty_channel_costs_its_share() -> None:
    (finding,) = judge("memory_hardware/memory-dimm-population", on_channels(1, 1, 1, 0))
    assert finding.message == "empty: C3"
    assert finding.cost == "75% of the memory bandwidth, by channels in use"


@pytest.mark.parametrize(("modules", "verdict"), [(8, "pass"), (16, "fail"), (4, "warn")])
def test_a_wanted_number(modules: int, verdict: str) -> None:
    dimms = on_channels(2, 2, 2, 2)
    findings = judge("memory_hardware/memory-dimm-population", dimms, modules=modules)
    assert [f.verdict.value for f in findings] == [verdict, "pass"]


@pytest.mark.parametrize(("mts", "verdict"), [(5600, "pass"), (4800, "warn"), (None, "unknown")])
def test_speed(mts: int | None, verdict: str) -> None:
    dimms = slots(GOOD, GOOD._replace(slot="A2", configured_mts=mts))
    (finding,) = judge("memory_hardware/memory-dimm-speed", dimms)
    assert finding.verdict.value == verdict
    assert (finding.observed or "").endswith("made for 5600 MT/s")


@pytest.mark.parametrize(("least", "verdict"), [(5600, "pass"), (6400, "fail")])
def test_a_wanted_speed(least: int, verdict: str) -> None:
    findings = judge("memory_hardware/memory-dimm-speed", slots(GOOD), min_speed_mts=least)
    assert [f.verdict.value for f in findings] == ["pass", verdict]
