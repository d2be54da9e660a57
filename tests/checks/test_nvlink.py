# SPDX-License-Identifier: Apache-2.0
"""NVLink: links that are up, and their speed."""

from typing import Any

import msgspec
import pytest
from fakenvml import healthy_h100
from gpufacts import function, only, policy, section, verdicts
from linkfacts import BARE, GUEST, down, links, replaced

from gpuaudit.facts.gpuvalues import Setting
from gpuaudit.facts.nvlink import NvLinks

NVL, UNKNOWN_PRODUCT = 0x232110DE, 0x123410DE


def active(found: NvLinks, node: Any = BARE, **want: Any) -> Any:
    name = "nvlink-links-active"
    return function(name)(found, node, policy(section(name), **want))


def test_all_links_are_up() -> None:
    assert verdicts(active(links())) == ["pass"] * 8


def test_a_link_that_is_down_is_named_with_its_cost() -> None:
    finding = only(active(links(down(3, 17))))
    assert "16 of 18 NVLinks are up (down: 3, 17)" in finding.message
    assert finding.cost == "425 instead of 478 GB/s each way"
    assert only(active(links(down(*range(18))))).cost == "all NVLink bandwidth of this GPU"


def test_a_link_that_sleeps_is_up() -> None:
    asleep = {"NvLinkState(3)": 0, "FieldValues(165,3)": 2}
    assert verdicts(active(links(asleep))) == ["pass"] * 8


@pytest.mark.parametrize("numbers", [(4, 5, 10, 11, 16, 17), tuple(range(18))])
def test_a_bridge_uses_twelve_links_or_is_not_there(numbers: tuple[int, ...]) -> None:
    pci = healthy_h100()["devices"][2]["nvmlDeviceGetPciInfo"]["v"] | {"pciDeviceId": NVL}
    found = links({**down(*numbers), "PciInfo": pci})
    expected = "pass" if len(numbers) == 6 else "notapplicable"
    assert verdicts(active(found))[2] == expected
    assert verdicts(active(links({**down(4), "PciInfo": pci})))[2] == "fail"


def test_an_unknown_product_is_compared_with_its_neighbours() -> None:
    pci = healthy_h100()["devices"][2]["nvmlDeviceGetPciInfo"]["v"]
    other = {"PciInfo": pci | {"pciDeviceId": UNKNOWN_PRODUCT}}
    assert verdicts(active(links(other)))[2] == "notapplicable"
    found = active(board(UNKNOWN_PRODUCT, (18, 18, 17, 18), to=2))
    assert verdicts(found) == ["notapplicable", "notapplicable", "warn", "notapplicable"]


def board(device_id: int, ups: tuple[int, ...], to: int = 0) -> NvLinks:
    """GPUs of one product with so many links up."""
    found = links(count=len(ups))
    told = []
    for one, up in zip(found.gpus, ups, strict=True):
        pci = msgspec.structs.replace(one.gpu.pci, device_id=device_id)
        each = tuple(msgspec.structs.replace(n, up=n.number < up) for n in one.links)
        gpu = msgspec.structs.replace(one.gpu, pci=pci)
        told.append(msgspec.structs.replace(one, gpu=gpu, links=each, to=to if up else None))
    return msgspec.structs.replace(found, gpus=tuple(told))


@pytest.mark.parametrize("product", [NVL, UNKNOWN_PRODUCT])
def test_bridges_join_pairs(product: int) -> None:
    none = verdicts(active(board(product, (0, 0, 0, 0))))
    assert set(none) == {"notapplicable"}
    left_over = verdicts(active(board(product, (12, 12, 0))))
    assert left_over[2] == "notapplicable"
    assert "warn" not in left_over
    loose = verdicts(active(board(product, (12, 12, 0, 0))))
    assert loose[2:] == ["warn", "warn"]
    given = verdicts(active(board(product, (12, 12, 0, 0)), GUEST))
    assert given[2:] == ["notapplicable"] * 2, "their partners may be another guest's"


def test_an_unknown_board_with_switches_has_no_bridges() -> None:
    found = board(UNKNOWN_PRODUCT, (18, 18, 18, 0), to=2)
    assert verdicts(active(found)) == ["notapplicable"] * 3 + ["warn"]
    found = board(UNKNOWN_PRODUCT, (17, 18), to=2)
    assert verdicts(active(found)) == ["warn", "notapplicable"]


@pytest.mark.parametrize(("product", "links_up"), [(0x233010DE, 18), (0x232410DE, 8)])
def test_products_with_another_number(product: int, links_up: int) -> None:
    assert verdicts(active(board(product, (links_up,) * 8, to=2))) == ["pass"] * 8
    assert verdicts(active(board(product, (links_up - 1,) * 8, to=2))) == ["fail"] * 8


def test_gpus_whose_links_are_not_judged() -> None:
    nothing = {"NvLinkState(0)": {"e": 3}} | {f"NvLinkState({n})": {"e": 3} for n in range(18)}
    assert verdicts(active(links(nothing)))[2] == "fail"
    failed = {f"NvLinkState({n})": {"e": 999} for n in range(18)}
    assert verdicts(active(links(failed)))[2] == "unknown"
    assert verdicts(active(replaced(links(down(1)), mig=Setting(1, 1))))[2] == "notapplicable"
    assert verdicts(active(replaced(links(down(1)), virtualization=2)))[2] == "notapplicable"
    gone = {f"NvLinkState({n})": {"e": 15} for n in range(18)}
    assert verdicts(active(links(gone)))[2] == "unknown"
    alone = links(down(*range(18)), gpu=0, count=1)
    assert verdicts(active(alone, GUEST)) == ["notapplicable"]
    assert verdicts(active(alone, BARE)) == ["fail"]


def test_one_gpu_that_knows_of_no_links_beside_others_that_do() -> None:
    nothing = {f"NvLinkState({n})": {"e": 3} for n in range(18)}
    assert verdicts(active(links(nothing)))[2] == "fail"
    assert verdicts(active(replaced(links(nothing), mig=Setting(1, 1))))[2] == "notapplicable"
    assert verdicts(active(links(nothing, gpu=0, count=1))) == ["notapplicable"]


def test_a_link_that_does_not_tell_is_not_down() -> None:
    broken = {"NvLinkState(5)": {"e": 999}, "FieldValues(165,5)": {"e": 999}}
    assert only(active(links(broken)), "unknown").message.startswith("NvLinkState(5)")
    both = {"NvLinkState(5)": {"e": 999}, "FieldValues(165,5)": {"e": 999}, **down(3)}
    assert verdicts(active(links(both)))[2] == "fail"


def test_a_guest_may_be_given_a_part_of_a_board() -> None:
    half = links(count=4)
    assert verdicts(active(half, GUEST)) == ["pass"] * 4
    one_less = links(down(3), count=4)
    assert verdicts(active(one_less, GUEST)) == ["pass", "pass", "fail", "pass"]
    assert verdicts(active(one_less, BARE))[2] == "fail"
    assert verdicts(active(links(down(3), gpu=0, count=2), GUEST)) == ["fail", "pass"]
    document = links(count=4)
    fewer = [msgspec.structs.replace(one, links=one.links[:9]) for one in document.gpus]
    partial = msgspec.structs.replace(document, gpus=tuple(fewer))
    assert verdicts(active(partial, GUEST)) == ["notapplicable"] * 4
    assert verdicts(active(partial, BARE)) == ["fail"] * 4
    assert verdicts(active(links(down(3)), GUEST))[2] == "fail", "a whole board"


def speed(found: NvLinks) -> Any:
    return function("nvlink-link-speed")(found, policy(section("nvlink-link-speed")))


def test_speed_of_the_links() -> None:
    assert verdicts(speed(links())) == ["pass"] * 8
    finding = only(speed(links({"FieldValues(164,7)": 13281})))
    assert (finding.observed, finding.expected) == ("13.3 GB/s", "26.6 GB/s")
    assert (finding.message, finding.cost) == (
        "NVLinks below their speed: 7",
        "13 GB/s less each way",
    )
    assert verdicts(speed(links({"FieldValues(164,7)": {"e": 3}})))[2] == "notapplicable"
    assert verdicts(speed(links({"FieldValues(164,7)": {"e": 999}})))[2] == "unknown"
    assert verdicts(speed(links({"FieldValues(164,7)": 0})))[2] == "unknown"
    assert verdicts(speed(links(down(*range(18)))))[2] == "notapplicable"


def test_a_slow_link_of_an_unknown_product_warns() -> None:
    pci = healthy_h100()["devices"][2]["nvmlDeviceGetPciInfo"]["v"]
    other = {"PciInfo": pci | {"pciDeviceId": UNKNOWN_PRODUCT}}
    assert verdicts(speed(links(other)))[2] == "pass"
    assert verdicts(speed(links({**other, "FieldValues(164,7)": 20000})))[2] == "warn"
