# SPDX-License-Identifier: Apache-2.0
"""Variables left behind, by facts made by hand."""

from typing import Any

import pytest
from gpufacts import findings, function, only, policy, scan, section, verdicts

from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import KernelDriver
from gpuaudit.facts.environment import Assignment, Environment
from gpuaudit.facts.environmentloader import Folder, Loader
from gpuaudit.facts.environmentnccl import NcclConf, mistake
from gpuaudit.facts.generation import Generation, GpuKind
from gpuaudit.host import NotApplicable

DENIED = Absent("denied", "needs root")
NO_CALLER = Absent("unsupported", "an image has no running kernel")
DRIVER = KernelDriver(loaded=True, version="570.86.15", flavour="open")
H200 = GpuKind("0000:19:00.0", "10de:2335", "NVIDIA H200", "GH100")
GEFORCE = GpuKind("0000:19:00.0", "10de:2684", "NVIDIA GeForce RTX 4090", "AD10x")


def made(name: str, value: str, reach: str = "logins", **more: Any) -> Assignment:
    return Assignment(name, value, "/etc/environment:3", reach, **more)


def env(*found: Assignment, gaps: Any = None, **caller: str) -> Environment:
    return Environment(assignments=found, caller=caller, gaps=gaps or {})


def loader(*folders: Folder, **more: Any) -> Loader:
    fields = {"preloaded": (), "compat": {}, "gaps": {}, **more}
    return Loader(folders=folders, **fields)


def judged(check: str, *facts: Any, **want: Any) -> Any:
    return function(check)(*facts, policy(section(check), **want))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (env(made("CUDA_LAUNCH_BLOCKING", "1")), "fail"),
        (env(made("CUDA_LAUNCH_BLOCKING", "0")), "pass"),
        (env(made("CUDA_LAUNCH_BLOCKING", "")), "pass"),
        (env(made("CUDA_LAUNCH_BLOCKING", "1", conditional=True)), "warn"),
        (env(made("CUDA_LAUNCH_BLOCKING", "1", "slurmd.service")), "warn"),
        (env(made("CUDA_LAUNCH_BLOCKING", "1", "every service")), "warn"),
        (env(CUDA_LAUNCH_BLOCKING="1"), "warn"),
        (env(made("NCCL_ALGO", "Ring")), "warn"),
        (env(made("NCCL_DEBUG", "INFO")), "pass"),
        (env(gaps={"/etc/environment": DENIED}), "unknown"),
        (env(gaps={"/etc/environment": NO_CALLER}), "pass"),
    ],
)
def test_debugging_variables(found: Environment, verdict: str) -> None:
    assert verdicts(judged("environment-debug", found)) == [verdict]


def test_a_finding_names_the_place_and_the_cost() -> None:
    one = only(judged("environment-debug", env(made("CUDA_LAUNCH_BLOCKING", "1"))))
    assert one.subject == "CUDA_LAUNCH_BLOCKING in /etc/environment"
    assert one.evidence == ("/etc/environment:3",)
    assert one.cost
    assert "logins" in one.message


def test_an_image_is_judged_without_a_caller() -> None:
    found = Environment(assignments=(), caller=NO_CALLER, gaps={})
    assert verdicts(judged("environment-debug", found)) == ["notapplicable", "pass"]
    hidden = Environment(assignments=(), caller=DENIED, gaps={})
    assert "unknown" in verdicts(judged("environment-debug", hidden))


@pytest.mark.parametrize(
    ("found", "forced", "verdict"),
    [
        (env(), (), "pass"),
        (env(made("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")), (), "pass"),
        (env(made("LD_PRELOAD", "/x/libjemalloc.so.2:/x/spy.so")), (), "warn"),
        (env(NVTX_INJECTION64_PATH="/x/nsys.so"), (), "warn"),
        (env(), ("/x/spy.so",), "warn"),
    ],
)
def test_injected_libraries(found: Environment, forced: tuple[str, ...], verdict: str) -> None:
    assert verdicts(judged("environment-injection", found, loader(preloaded=forced))) == [verdict]


def test_an_unreadable_preload_file_is_unknown() -> None:
    answer = judged("environment-injection", env(), loader(preloaded=DENIED))
    assert "unknown" in verdicts(answer)


@pytest.mark.parametrize(
    ("found", "confined", "expected"),
    [
        (env(), None, ["pass"]),
        (env(made("CUDA_VISIBLE_DEVICES", "0")), None, ["warn"]),
        (env(made("CUDA_VISIBLE_DEVICES", "")), None, ["warn"]),
        (env(made("NVIDIA_VISIBLE_DEVICES", "all")), None, ["pass"]),
        (env(CUDA_VISIBLE_DEVICES="0"), None, ["pass", "warn"]),
        (env(CUDA_VISIBLE_DEVICES=""), None, ["pass", "warn"]),
        (env(CUDA_VISIBLE_DEVICES="0,-1,1"), None, ["pass", "warn"]),
        (env(CUDA_VISIBLE_DEVICES="1,0"), None, ["pass", "pass"]),
        (env(CUDA_VISIBLE_DEVICES="MIG-1234"), None, ["pass", "pass"]),
        (env(CUDA_VISIBLE_DEVICES="0"), "a Slurm job", ["pass", "notapplicable"]),
        (env(CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID="7"), None, ["pass", "notapplicable"]),
    ],
)
def test_hidden_gpus(found: Environment, confined: str | None, expected: list[str]) -> None:
    bus = scan(["0000:19:00.0", "0000:3b:00.0"], confined=confined)
    assert verdicts(function("environment-visible-devices")(found, bus)) == expected


def test_the_library_path() -> None:
    check = function("environment-library-path")
    stub = "/usr/local/cuda/lib64/stubs"
    assert verdicts(check(loader(Folder("/usr/lib", "a:1", "every program")))) == ["pass"]
    assert verdicts(check(loader(Folder(stub, "a:1", "every program")))) == ["fail"]
    assert verdicts(check(loader(Folder(stub, "a:1", "logins")))) == ["warn"]
    assert verdicts(check(loader(gaps={"/etc/ld.so.conf": DENIED}))) == ["unknown"]


@pytest.mark.parametrize(
    ("release", "reach", "gpu", "verdict"),
    [
        ("580.65.06", "every program", H200, "pass"),
        ("550.54.15", "every program", H200, "fail"),
        ("550.54.15", "logins", H200, "warn"),
        ("580.65.06", "every program", GEFORCE, "fail"),
    ],
)
def test_compatibility_libraries(release: str, reach: str, gpu: GpuKind, verdict: str) -> None:
    folder = Folder("/usr/local/cuda/compat", "a:1", reach)
    found = loader(folder, compat={folder.path: release})
    check = function("environment-forward-compat")
    assert verdicts(check(found, DRIVER, Generation(gpus=(gpu,)))) == [verdict]


def test_compatibility_libraries_that_are_not_there() -> None:
    check = function("environment-forward-compat")
    with pytest.raises(NotApplicable):
        findings(check(loader(), DRIVER, Generation(gpus=(H200,))))
    hidden = loader(gaps={"/etc/ld.so.conf": DENIED})
    assert verdicts(check(hidden, DRIVER, Generation(gpus=(H200,)))) == ["unknown"]
    folder = Folder("/c/compat", "a:1", "logins")
    absent = KernelDriver(loaded=False, version=DENIED, flavour=DENIED)
    found = loader(folder, compat={folder.path: "1.1"})
    assert verdicts(check(found, absent, Generation(gpus=(H200,)))) == ["unknown"]


def test_nccl_settings_for_everyone() -> None:
    check = "environment-nccl-node-wide"
    one, same = made("NCCL_NET", "IB"), made("NCCL_NET", "IB", "login shells")
    other, unsure = made("NCCL_NET", "Socket"), made("NCCL_NET", "Socket", conditional=True)
    assert verdicts(judged(check, env())) == ["pass"]
    assert verdicts(judged(check, env(one, same, unsure))) == ["pass"]
    assert verdicts(judged(check, env(one, other))) == ["warn"]
    assert verdicts(judged(check, env(one), node_wide="none")) == ["warn"]


def test_settings_of_cuda_are_listed_and_folders_are_not() -> None:
    check, name = "environment-nccl-node-wide", "CUDA_DEVICE_MAX_CONNECTIONS"
    listed = judged(check, env(made(name, "1"), made("CUDA_HOME", "/usr/local/cuda")))
    assert only(listed, "pass").subject == name
    two = env(made(name, "1"), made(name, "8", "slurmd.service"))
    assert "1 for logins, 8 for slurmd.service" in only(judged(check, two), "warn").message
    folders = env(made("CUDA_PATH", "/a"), made("CUDA_PATH", "/b", "slurmd.service"))
    assert only(judged(check, folders), "pass").observed == "none"
    assert verdicts(judged(check, env(gaps={"/etc/environment": DENIED}))) == ["unknown"]


def conf(text: str | None, *, reads: bool | None = True, gaps: Any = None) -> NcclConf:
    texts = {} if text is None else {"/etc/nccl.conf": text}
    return NcclConf(texts=texts, everyone_reads=reads, gaps=gaps or {})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (conf("# a\n\nNCCL_DEBUG=WARN\n"), "pass"),
        (conf("NCCL_DEBUG=WARN\n", reads=None), "pass"),
        (conf("NCCL_DEBUG=WARN\n", reads=False), "fail"),
        (conf('NCCL_SOCKET_IFNAME="eth0"\n'), "fail"),
        (conf(None, gaps={"/root/x": Absent("missing", "x does not exist")}), "warn"),
        (conf(None, gaps={"/etc/nccl.conf": DENIED}), "unknown"),
    ],
)
def test_nccl_conf(found: NcclConf, verdict: str) -> None:
    assert verdicts(function("environment-nccl-conf")(found)) == [verdict]


def test_a_users_own_nccl_conf_only_warns() -> None:
    found = NcclConf(texts={"/root/.nccl.conf": "export A=1"}, everyone_reads=None, gaps={})
    assert verdicts(function("environment-nccl-conf")(found)) == ["warn"]
    with pytest.raises(NotApplicable):
        findings(function("environment-nccl-conf")(conf(None)))


@pytest.mark.parametrize(
    "line", [" A=1", "A =1", "A= x", "A=x ", "A='1'", "export A=1", "A", " # x", "A=x\r", "A=x # x"]
)
def test_lines_that_nccl_does_not_take(line: str) -> None:
    assert mistake(line)


@pytest.mark.parametrize(
    "line", ["A=1", "A=1 ", "A= 1", "A=1\r", "A=1 # x", "#A = 1", "", "  ", "A=", "A=a,b:1#2"]
)
def test_lines_that_nccl_takes(line: str) -> None:
    assert mistake(line) is None
