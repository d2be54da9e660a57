# SPDX-License-Identifier: Apache-2.0
"""CPU lists and masks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaudit.facts.cpusets import CpuSetError, format_list, parse_list, parse_mask


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("0", {0}),
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("0-7:2/4", {0, 1, 4, 5}),
        ("0,4,8\n", {0, 4, 8}),
    ],
)
def test_lists(text: str, cpus: set[int]) -> None:
    assert parse_list(text) == cpus


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "3-1",
        "0-",
        "-1",
        "0-99999999",
        "0-3:1/0",
        "1,,2",
        "0 1",
        "\u0663",
        "9" * 5000,
        ",".join(["0-65535"] * 100_000),
    ],
)
def test_no_list(text: str) -> None:
    with pytest.raises(CpuSetError):
        parse_list(text)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("f", {0, 1, 2, 3}),
        ("1,00000000", {32}),
        ("0x3", {0, 1}),
        ("00000000,00000001", {0}),
        ("8000000000000000", {63}),
    ],
)
def test_masks(text: str, cpus: set[int]) -> None:
    assert parse_mask(text) == cpus


@pytest.mark.parametrize("text", ["", "g", "1,2", "1,000000000", "-1", "1 2", "f" * 20_000])
def test_no_mask(text: str) -> None:
    with pytest.raises(CpuSetError):
        parse_mask(text)


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_comes_back(cpus: frozenset[int]) -> None:
    assert parse_list(format_list(cpus)) == cpus
