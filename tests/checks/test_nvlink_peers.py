# SPDX-License-Identifier: Apache-2.0
"""Which GPUs reach each other, and NVLink SHARP."""

from typing import Any

import msgspec
import pytest
from fakenvml import DRIVER, healthy_h100
from gpufacts import answers, findings, function, gpus, scan, verdicts
from linkfacts import BARE, GUEST, links, replaced

from gpuaudit.facts.gpuvalues import Setting
from gpuaudit.facts.nvlink import NvLinks, nvlinks
from gpuaudit.facts.nvml import Nvml
from gpuaudit.host import NotApplicable


def peers(found: NvLinks, **bus: Any) -> Any:
    return function("nvlink-peers")(found, scan((), **bus))


def test_peers_behind_switches() -> None:
    assert verdicts(peers(links())) == ["pass"] * 8
    found = peers(links({"P2PStatus(5,2)": 5, "P2PStatus(5,0)": 0}))
    bad = {f.subject[:5]: f for f in found if f.verdict.value == "fail"}
    assert list(bad) == ["GPU 2", "GPU 5"]
    assert bad["GPU 2"].message == "no NVLink to GPU 5 (not supported)"
    assert verdicts(peers(links({"P2PStatus(5,2)": {"e": 999}}))).count("unknown") == 2
    with pytest.raises(NotApplicable):
        findings(peers(links(count=1, gpu=0)))


def test_peers_that_are_not_meant_to_reach_each_other() -> None:
    apart = {f"P2PStatus({n},2)": 5 for n in range(3, 8)}
    fabric = healthy_h100()["devices"][2]["nvmlDeviceGetGpuFabricInfoV"]["v"]
    other = links({**apart, "GpuFabricInfoV": fabric | {"cliqueId": 4}})
    assert verdicts(peers(other)) == [*["pass"] * 2, "notapplicable", *["pass"] * 5]
    sliced = replaced(links(apart), mig=Setting(1, 1))
    assert verdicts(peers(sliced)) == [*["pass"] * 2, "notapplicable", *["pass"] * 5]
    assert verdicts(peers(replaced(links(apart), virtualization=3)))[2] == "notapplicable"
    gone = {f"NvLinkState({n})": {"e": 15} for n in range(18)}
    assert verdicts(peers(links(gone)))[2] == "unknown"


def bridged(status: int | dict[str, int], read: int = 0, *, up: bool = True) -> NvLinks:
    """Two GPUs without switches."""
    document = healthy_h100(2)
    for device in document["devices"]:
        device["nvmlDeviceGetNvLinkRemoteDeviceType(0)"] = {"v": 0}
        for n in range(0 if up else 18):
            device[f"nvmlDeviceGetNvLinkState({n})"] = {"v": 0}
            device[f"nvmlDeviceGetFieldValues(165,{n})"] = {"v": 0}
    told = status if isinstance(status, dict) else {"v": status}
    document["devices"][0]["nvmlDeviceGetP2PStatus(1,2)"] = told
    document["devices"][0]["nvmlDeviceGetP2PStatus(1,0)"] = {"v": read}
    return nvlinks(Nvml(answers=answers(document)), gpus(document))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (bridged(0), "pass"),
        (bridged(5), "warn"),
        (bridged({"e": 999}), "unknown"),
        (bridged(5, 0, up=False), "pass"),
        (bridged(5, 4, up=False), "warn"),
        (bridged(5, 1, up=False), "notapplicable"),
        (bridged(2, 2, up=False), "notapplicable"),
    ],
)
def test_peers_without_switches(found: NvLinks, verdict: str) -> None:
    assert verdicts(peers(found)) == [verdict] * 2


def test_a_bridge_may_lead_to_a_gpu_that_a_job_does_not_see() -> None:
    assert verdicts(peers(bridged(5, 0), confined="a Slurm job")) == ["pass"] * 2


def sharp(found: NvLinks, node: Any = BARE, driver: str | None = DRIVER) -> Any:
    of = msgspec.structs.replace(gpus(), driver=driver)
    return function("nvlink-sharp")(found, of, node)


def test_sharp() -> None:
    assert verdicts(sharp(links())) == ["pass"] * 8
    assert verdicts(sharp(links(), driver="525.60.13")) == ["warn"] * 8
    assert verdicts(sharp(links(), driver=None)) == ["unknown"] * 8
    assert verdicts(sharp(links(), GUEST)) == ["notapplicable"] * 8
    fabric = healthy_h100()["devices"][2]["nvmlDeviceGetGpuFabricInfoV"]["v"] | {"state": 2}
    for changes in ({"Architecture": 7}, {"GpuFabricInfoV": fabric}, {"MigMode": [1, 1]}):
        assert verdicts(sharp(links(changes)))[2] == "notapplicable"
    assert verdicts(sharp(links({"Architecture": {"e": 999}})))[2] == "unknown"
