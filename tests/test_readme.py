# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what the program prints."""

import re
from pathlib import Path

import pytest
from fakenode import healthy_node
from fakenode.faults_host import swap_on
from fakenode.faults_pci import acs_redirects_on_gpu_port, gpu_at_8_lanes

from gpuaudit import audit
from gpuaudit.cli.output import RENDERERS

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = (
    "<!-- example: begin -->\n```console\n$ gpuaudit run --snapshot node017.tar.gz\n",
    "```\n<!-- example: end -->",
)


def example() -> str:
    """The text report of the 8-GPU node with three faults, its duration set to one value."""
    import importlib

    node = healthy_node().copied()
    for broken in (gpu_at_8_lanes, acs_redirects_on_gpu_port, swap_on):
        broken(node)
    report = audit.run(node.host(), audit.Request()).report
    text = importlib.import_module(RENDERERS["text"]).render(report)
    assert isinstance(text, str)
    return re.sub(r"checks in \d+\.\d\d s", "checks in 0.12 s", text)


@pytest.mark.tree
def test_the_readme_shows_real_output() -> None:
    text = README.read_text()
    shown = text.partition(BEGIN)[2].partition(END)[0]
    assert shown == example()
