# SPDX-License-Identifier: Apache-2.0
"""Each kernel parameter that tunes a node is compared: now, at the next boot, in the settings."""

import pytest
from fakenode import FakeNode, healthy_node
from fakenode.breaking import text

from gpuaudit import audit
from gpuaudit.check import Verdict

NOW = ("/proc/cmdline",)
ENTRY, SETTINGS = "/boot/grub/grub.cfg", "/etc/default/grub"
PLACE = "transparent_hugepage=madvise"
WORDS = (
    "amd_iommu=off",
    "hugepages=64",
    "init_on_alloc=1",
    "intel_iommu=off",
    "iommu=soft",
    "isolcpus=2-7",
    "mitigations=off",
    "nohz_full=2-7",
    "numa_balancing=disable",
    "pci=noacs",
    "transparent_hugepage=always",
)


def verdicts(*places: str, word: str) -> dict[str, Verdict]:
    node: FakeNode = healthy_node()
    for place in places:
        node.files[place] = text(node, place).replace(PLACE, f"{PLACE} {word}")
    request = audit.Request(profile="bringup", select=("kernel-cmdline-*",))
    return {r.check: r.verdict for r in audit.run(node.host(), request).report.results}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("places", [NOW, (ENTRY, SETTINGS)], ids=["now", "next-boot"])
def test_what_changes_with_the_next_boot(places: tuple[str, ...], word: str) -> None:
    assert verdicts(*places, word=word)["kernel-cmdline-next-boot"] is Verdict.WARN


@pytest.mark.parametrize("word", WORDS)
def test_what_is_set_and_not_yet_written(word: str) -> None:
    found = verdicts(SETTINGS, word=word)
    assert found["kernel-cmdline-generated"] is Verdict.WARN
    assert found["kernel-cmdline-next-boot"] is Verdict.PASS


def test_a_word_that_changes_nothing_is_not_told() -> None:
    found = verdicts(*NOW, word="console=ttyS1")
    assert found["kernel-cmdline-next-boot"] is Verdict.PASS
