# SPDX-License-Identifier: Apache-2.0
"""The real nvidia-ml-py client against a fake driver library, through the child process."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakenvml import (
    CRASH,
    LINK_MB_PER_S,
    NVLINKS,
    SLEEP,
    Document,
    build_shim,
    healthy_h100,
    shim_env,
    write_document,
)
from system import need

from gpuaudit.host import nvml
from gpuaudit.host.answers import (
    Answer,
    BadAnswers,
    NvmlAnswers,
    decode_answers,
    encode_answers,
    nvml_problem,
)

HANDLE = "nvmlDeviceGetHandleByIndex_v2"
DEADLINE_S = 2.0
AMPLE_S = 60.0
INIT_ERRORS = (4, 9, 10, 12, 15, 16, 18, 28, 999)

AUDIT = """
import sys, time
from gpuaudit.host import nvml
from gpuaudit.host.answers import encode_answers
{before}
began = time.monotonic()
session = nvml.start({deadline_s})
started_s = time.monotonic() - began
{between}
answers = session.finish()
assert session.finish() is answers
print(started_s, time.monotonic() - began, session._pid)
print(encode_answers(answers).decode())
"""


class Audit(NamedTuple):
    answers: NvmlAnswers
    start_s: float
    total_s: float
    process_s: float
    child: int


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gcc", "gcc")
    return build_shim(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gcc", "gcc")
    return build_shim(tmp_path_factory.mktemp("old-nvml"), "-DOLD_LIBRARY")


def audit(
    library: Path,
    document: Document,
    where: Path,
    *,
    deadline_s: float = AMPLE_S,
    before: str = "",
    between: str = "",
) -> Audit:
    path = write_document(where / "nvml.json", document)
    script = AUDIT.format(before=before, between=between, deadline_s=deadline_s)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=shim_env(library, path),
        capture_output=True,
        text=True,
        timeout=AMPLE_S + 30,
        check=False,
    )
    process_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    times, body = done.stdout.splitlines()
    start_s, total_s, child = times.split()
    answers = decode_answers(body)
    return Audit(answers, float(start_s), float(total_s), process_s, int(child))


def document_of(answers: NvmlAnswers) -> Document:
    document: Document = json.loads(encode_answers(answers))
    return document


@pytest.mark.parametrize("count", [1, 8, 16])
def test_every_answer_of_the_document_comes_back(library: Path, tmp_path: Path, count: int) -> None:
    document = healthy_h100(count)
    got = document_of(audit(library, document, tmp_path).answers)
    assert got.pop("binding")
    document.pop("binding")
    assert got == document


def test_other_values_come_back_exactly(library: Path, tmp_path: Path) -> None:
    document = healthy_h100(3)
    fabric = {"clusterUuid": "00112233445566778899aabbccddeeff", "status": 0, "cliqueId": 7}
    fabric |= {"state": 2, "healthMask": 0x1A9, "healthSummary": 2, "version": 3}
    other: dict[str, Any] = {
        "nvmlDeviceGetName": 'NVIDIA \u00fcber \u4e16 \U0001f600 "quoted"\\',
        "nvmlDeviceGetGpuFabricInfoV": fabric,
        "nvmlDeviceGetMarginTemperature": -4,
        "nvmlDeviceGetTotalEccErrors(1,1)": 2**64 - 1,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x8000000000000048,
        "nvmlDeviceGetComputeRunningProcesses": [4211, 4212, 99],
        "nvmlDeviceGetRetiredPages(0)": 12,
        "nvmlDeviceGetRetiredPages(1)": 0,
        "nvmlDeviceGetFieldValues(230)": 3,
        "nvmlDeviceGetMigMode": [0, 1],
        "nvmlDeviceGetRemappedRows": [1, 2, 1, 0],
        "nvmlDeviceGetNvLinkState(3)": 0,
        "nvmlDeviceGetP2PStatus(2,2)": 5,
        "nvmlDeviceGetFieldValues(270)": 2**40,
        "nvmlDeviceGetFieldValues(163,17)": 12,
        "nvmlDeviceGetRepairStatus": [1, 0],
        "nvmlDeviceGetMPSComputeRunningProcesses": [77],
        "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 22},
        "nvmlDeviceGetFieldValues(186)": 655_000,
        "nvmlDeviceGetClockInfo(1)": 1680,
        "nvmlDeviceGetClockInfo(1)#2": 1605,
        "nvmlDeviceGetCurrentClocksEventReasons#2": 4,
        "nvmlDeviceGetFieldValues(186)#2": 701_000,
    }
    document["devices"][1] |= {call: {"v": value} for call, value in other.items()}
    answers = audit(library, document, tmp_path).answers
    assert {call: answers.of_device(1, call).v for call in other} == other


def test_fields_of_links_are_asked_where_the_first_one_that_is_up_has_them(
    library: Path, tmp_path: Path
) -> None:
    document = healthy_h100(2)
    odd = document["devices"][1]
    for link in (0, 4):
        odd[f"nvmlDeviceGetNvLinkState({link})"] = {"v": 0}
    for field in (161, 162, 163):
        for link in range(NVLINKS):
            odd[f"nvmlDeviceGetFieldValues({field},{link})"] = {"e": 3}
    odd["nvmlDeviceGetFieldValues(214,1)"] = {"v": 1}
    odd["nvmlDeviceGetFieldValues(214,0)"] = {"e": 10}
    found = audit(library, document, tmp_path).answers.devices[1]
    assert "nvmlDeviceGetNvLinkRemoteDeviceType(1)" in found
    assert found["nvmlDeviceGetFieldValues(161,1)"].unsupported
    assert "nvmlDeviceGetFieldValues(161,2)" not in found
    assert found["nvmlDeviceGetFieldValues(164,4)"].v == LINK_MB_PER_S
    assert found["nvmlDeviceGetFieldValues(214,1)"].v == 1
    assert found["nvmlDeviceGetFieldValues(214,0)"].e == 10


def test_a_pair_without_nvlink_is_asked_whether_it_reads(library: Path, tmp_path: Path) -> None:
    document = healthy_h100(3)
    pcie = {"nvmlDeviceGetP2PStatus(2,2)": 5, "nvmlDeviceGetP2PStatus(2,0)": 1}
    document["devices"][1] |= {call: {"v": status} for call, status in pcie.items()}
    devices = audit(library, document, tmp_path).answers.devices
    assert {call: devices[1][call].v for call in pcie} == pcie
    assert "nvmlDeviceGetP2PStatus(2,0)" not in devices[0]
    assert "nvmlDeviceGetP2PStatus(0,2)" not in devices[2]


def test_links_behind_one_that_is_not_there_are_asked(library: Path, tmp_path: Path) -> None:
    document = healthy_h100(1)
    document["devices"][0]["nvmlDeviceGetNvLinkState(3)"] = {"e": 3}
    found = audit(library, document, tmp_path).answers.devices[0]
    assert found["nvmlDeviceGetNvLinkState(17)"].v == 1
    assert found["nvmlDeviceGetNvLinkState(18)"].e == 2
    assert "nvmlDeviceGetNvLinkState(19)" not in found
    assert "nvmlDeviceGetFieldValues(164,3)" not in found


def test_the_links_between_gpu_and_cpu_are_asked_where_there_are_some(
    library: Path, tmp_path: Path
) -> None:
    document = healthy_h100(1)
    grace = {"170": 2, "171,0": 1, "171,1": 0}
    document["devices"][0] |= {
        f"nvmlDeviceGetFieldValues({key})": {"v": value} for key, value in grace.items()
    }
    found = audit(library, document, tmp_path).answers.devices[0]
    assert {key: found[f"nvmlDeviceGetFieldValues({key})"].v for key in grace} == grace


def test_a_field_that_the_driver_did_not_fill_in_is_asked_alone(
    library: Path, tmp_path: Path
) -> None:
    document = healthy_h100(1)
    document["devices"][0] |= {"unfilled": True, "nvmlDeviceGetFieldValues(75)": {"v": 77}}
    found = audit(library, document, tmp_path).answers.devices[0]
    assert found["nvmlDeviceGetFieldValues(75)"].v == 77
    assert found["nvmlDeviceGetFieldValues(164,17)"].v == LINK_MB_PER_S


def test_a_binding_without_fields_answers_so_for_each(library: Path, tmp_path: Path) -> None:
    before = "import pynvml; del pynvml.nvmlDeviceGetFieldValues"
    found = audit(library, healthy_h100(1), tmp_path, before=before).answers.devices[0]
    of_fields = {call: one.e for call, one in found.items() if "FieldValues" in call}
    assert set(of_fields.values()) == {13}
    assert {"nvmlDeviceGetFieldValues(271)", "nvmlDeviceGetFieldValues(164,0)"} <= set(of_fields)


def test_a_missing_key_is_unsupported_and_only_that(library: Path, tmp_path: Path) -> None:
    document = healthy_h100()
    asked = list(document["devices"][1])
    kept = {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName"}
    document["devices"][1] = {key: document["devices"][1][key] for key in kept}
    answers = audit(library, document, tmp_path).answers
    of_links = re.compile(r"NvLink|FieldValues\([0-9]+,")
    missing = [key for key in asked if key not in kept and not of_links.search(key)]
    assert [key for key in missing if not answers.of_device(1, key).unsupported] == []
    assert answers.of_device(1, "nvmlDeviceGetName").ok
    assert answers.of_device(1, "nvmlDeviceGetNvLinkState(0)").unsupported
    assert "nvmlDeviceGetNvLinkState(1)" not in answers.devices[1]
    assert document_of(answers)["devices"][2] == document["devices"][2]


def test_each_error_of_a_call_is_kept_with_its_code(library: Path, tmp_path: Path) -> None:
    document = healthy_h100(1)
    errors = {
        "nvmlDeviceGetSerial": 4,
        "nvmlDeviceGetEccMode": 10,
        "nvmlDeviceGetSramEccErrorStatus": 25,
        "nvmlDeviceGetFieldValues(230)": 3,
        "nvmlDeviceGetApplicationsClock(0)": 26,
        "nvmlDeviceGetMemoryInfo_v2": 999,
        "nvmlDeviceGetGspFirmwareMode": 1234,
        "nvmlDeviceGetGpuFabricInfoV": 27,
    }
    document["devices"][0] |= {call: {"e": code} for call, code in errors.items()}
    answers = audit(library, document, tmp_path).answers
    assert {call: answers.of_device(0, call).e for call in errors} == errors
    assert answers.of_device(0, "nvmlDeviceGetSerial").denied
    assert answers.of_device(0, "nvmlDeviceGetApplicationsClock(0)").outdated
    assert answers.of_device(0, "nvmlDeviceGetEccMode").reason == "timeout (NVML error 10)"
    assert answers.problem() is None


@pytest.mark.parametrize("code", INIT_ERRORS)
def test_init_errors_end_the_questions(library: Path, tmp_path: Path, code: int) -> None:
    document = healthy_h100()
    document["init"] = {"e": code}
    answers = audit(library, document, tmp_path).answers
    assert answers.init.e == code
    assert answers.devices == ()
    assert answers.problem() == nvml_problem(code)
    assert answers.of_device(0, "nvmlDeviceGetName").reason == "NVML knows no GPU 0"
    assert answers.of_system("nvmlSystemGetDriverVersion") == answers.init
    assert answers.of_system("nvmlSystemGetNVMLVersion").ok is (code != 12)


def test_each_problem_has_its_own_kind_and_sentence() -> None:
    problems = {nvml_problem(code) for code in (*INIT_ERRORS, -1, 1234)}
    problems |= {nvml_problem(code, driver_loaded=True) for code in (9, 12)}
    assert len({problem.sentence for problem in problems}) == len(INIT_ERRORS) + 4
    assert len({problem.kind for problem in problems}) == len(INIT_ERRORS) + 3
    assert all(problem.sentence.endswith(".") for problem in problems)
    assert "code 1234" in nvml_problem(1234).sentence


def test_what_proc_knows_about_the_driver_changes_the_advice() -> None:
    assert nvml_problem(9, driver_loaded=False) == nvml_problem(9)
    assert "/dev/nvidiactl" in nvml_problem(9, driver_loaded=True).sentence
    assert "driver is loaded" in nvml_problem(12, driver_loaded=True).sentence
    assert nvml_problem(18, driver_loaded=True) == nvml_problem(18)


def test_a_library_that_cannot_be_loaded_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    answers = audit(tmp_path, healthy_h100(), tmp_path).answers
    assert (answers.init.e, answers.system, answers.devices) == (12, {}, ())


def test_without_the_binding_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    answers = nvml.start(AMPLE_S).finish()
    assert (answers.init.e, answers.binding, answers.hung) == (-1, None, None)
    problem = answers.problem()
    assert problem is not None
    assert problem.kind == "binding-missing"


def test_the_old_package_pynvml_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "pynvml"
    package.mkdir()
    (package / "__init__.py").write_text("class NVMLError(Exception): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    answers = nvml.start(AMPLE_S).finish()
    problem = answers.problem()
    assert answers.init.e == -1
    assert problem is not None
    assert problem.kind == "binding-wrong"
    assert str(package) in problem.sentence


def test_an_old_binding_lacks_a_call(library: Path, tmp_path: Path) -> None:
    before = "import pynvml; del pynvml.nvmlDeviceGetMarginTemperature, pynvml.nvmlMemory_v2"
    answers = audit(library, healthy_h100(1), tmp_path, before=before).answers
    for call in ("nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMemoryInfo_v2"):
        assert answers.of_device(0, call) == Answer(e=13, t="not in the installed nvidia-ml-py")


def test_the_bindings_own_fabric_structs_are_not_trusted(library: Path, tmp_path: Path) -> None:
    before = "import pynvml; del pynvml.c_nvmlGpuFabricInfoV_t, pynvml.c_nvmlGpuFabricInfo_t"
    document = healthy_h100(1)
    answers = audit(library, document, tmp_path, before=before).answers
    call = "nvmlDeviceGetGpuFabricInfoV"
    assert answers.of_device(0, call).v == document["devices"][0][call]["v"]


def test_a_binding_that_raises_anything_else_costs_one_answer(
    library: Path, tmp_path: Path
) -> None:
    before = "import pynvml; pynvml.nvmlDeviceGetName = lambda: None"
    answers = audit(library, healthy_h100(1), tmp_path, before=before).answers
    name = answers.of_device(0, "nvmlDeviceGetName")
    assert name.e == -2
    assert name.reason.startswith("TypeError: ")
    assert answers.of_device(0, "nvmlDeviceGetUUID").ok


def test_an_old_library_is_asked_by_the_older_calls(old_library: Path, tmp_path: Path) -> None:
    document = healthy_h100(2)
    fabric = {"clusterUuid": "0f" * 16, "status": 0, "cliqueId": 1, "state": 3}
    memory = {"total": 85_899_345_920, "free": 85_000_000_000, "used": 899_345_920}
    for device in document["devices"]:
        device["nvmlDeviceGetCurrentClocksThrottleReasons"] = {"v": 4}
        device["nvmlDeviceGetCurrentClocksThrottleReasons#2"] = {"v": 8}
        device["nvmlDeviceGetGpuFabricInfo"] = {"v": fabric}
        device["nvmlDeviceGetMemoryInfo"] = {"v": memory}
    answers = audit(old_library, document, tmp_path).answers
    absent = ("CurrentClocksEventReasons", "GpuFabricInfoV", "MarginTemperature")
    for call in (*absent, "SramEccErrorStatus", "MemoryInfo_v2"):
        assert answers.of_device(1, f"nvmlDeviceGet{call}").e == 13
        assert answers.of_device(1, f"nvmlDeviceGet{call}").outdated
    assert answers.of_device(1, "nvmlDeviceGetCurrentClocksThrottleReasons").v == 4
    assert answers.of_device(1, "nvmlDeviceGetCurrentClocksThrottleReasons#2").v == 8
    assert answers.of_device(1, "nvmlDeviceGetMemoryInfo").v == memory
    assert answers.of_device(1, "nvmlDeviceGetGpuFabricInfo").v == fabric
    assert answers.of_device(1, "nvmlDeviceGetPowerUsage").ok


def test_fallbacks_are_not_asked_of_a_library_that_needs_none(
    library: Path, tmp_path: Path
) -> None:
    answers = audit(library, healthy_h100(1), tmp_path).answers
    assert "nvmlDeviceGetCurrentClocksThrottleReasons" not in answers.devices[0]
    assert "nvmlDeviceGetGpuFabricInfo" not in answers.devices[0]
    assert "nvmlDeviceGetMemoryInfo" not in answers.devices[0]


@pytest.mark.parametrize(
    ("call", "device"), [("nvmlInit", None), ("nvmlDeviceGetEccMode", 3)], ids=["init", "gpu3"]
)
def test_sleep_for_ever_costs_the_deadline_and_is_named(
    library: Path, tmp_path: Path, call: str, device: int | None
) -> None:
    document = healthy_h100()
    if device is None:
        document["init"] = SLEEP
    else:
        document["devices"][device][call] = SLEEP
    got = audit(library, document, tmp_path, deadline_s=DEADLINE_S)
    hung = got.answers.hung
    assert hung is not None
    assert (hung.call, hung.device) == (call, device)
    assert 0 < hung.after_s < DEADLINE_S + 2
    assert got.start_s < DEADLINE_S
    assert DEADLINE_S <= got.total_s < DEADLINE_S + 2
    problem = got.answers.problem()
    assert problem is not None
    assert problem.kind == "hung"
    assert hung.subject in problem.sentence


def test_what_was_answered_before_the_hang_is_kept(library: Path, tmp_path: Path) -> None:
    document = healthy_h100()
    document["devices"][3]["nvmlDeviceGetEccMode"] = SLEEP
    answers = audit(library, document, tmp_path, deadline_s=DEADLINE_S).answers
    assert [answers.of_device(i, "nvmlDeviceGetName").ok for i in range(8)] == [True] * 8
    assert [answers.of_device(i, "nvmlDeviceGetEccMode").ok for i in range(8)] == [
        *[True] * 3,
        *[False] * 5,
    ]
    late = answers.of_device(6, "nvmlDeviceGetEccMode")
    assert late.e == -3
    assert late.reason == "not answered: NVML hung in nvmlDeviceGetEccMode on GPU 3"


def test_a_hang_that_ignores_even_sigkill_holds_nothing_of_the_audit(
    library: Path, tmp_path: Path
) -> None:
    """State D by other means: the kill is lost, and the child lives on when the audit has ended."""
    document = healthy_h100()
    document["init"] = SLEEP
    got = audit(
        library,
        document,
        tmp_path,
        deadline_s=DEADLINE_S,
        before="import os; os.kill = lambda pid, signal: None; kept = open('/dev/zero')",
    )
    try:
        held = {os.readlink(entry) for entry in Path(f"/proc/{got.child}/fd").iterdir()}
        assert os.getsid(got.child) == got.child
    finally:
        os.kill(got.child, signal.SIGKILL)
    assert got.process_s < DEADLINE_S + 4
    assert {name.partition(":")[0] for name in held} == {"/dev/null", "pipe"}
    assert len([name for name in held if name.startswith("pipe")]) == 1


def test_a_child_whose_parent_was_killed_ends_by_itself(library: Path, tmp_path: Path) -> None:
    document = healthy_h100()
    document["init"] = SLEEP
    script = (
        "import os; from gpuaudit.host import nvml, nvml_child\n"
        "nvml_child.ORPHAN_GRACE_S = 0.1\n"
        "os.write(1, str(nvml.start(0.2)._pid).encode()); os._exit(9)"
    )
    path = write_document(tmp_path / "nvml.json", document)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=shim_env(library, path),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 9
    assert wait_until_gone(int(done.stdout))


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            return True
        if state == "Z":  # nobody reaps orphans in some containers
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("call", "device"), [("nvmlInit", None), ("nvmlDeviceGetSerial", 5)], ids=["init", "gpu5"]
)
def test_a_crash_in_the_driver_library_is_its_own_thing(
    library: Path, tmp_path: Path, call: str, device: int | None
) -> None:
    document = healthy_h100()
    if device is None:
        document["init"] = CRASH
    else:
        document["devices"][device][call] = CRASH
    answers = audit(library, document, tmp_path).answers
    crashed = answers.crashed
    assert answers.hung is None
    assert crashed is not None
    assert (crashed.call, crashed.device, crashed.signal) == (call, device, signal.SIGSEGV)
    problem = answers.problem()
    assert problem is not None
    assert problem.kind == "crashed"
    assert f"{crashed.subject} (SIGSEGV)" in problem.sentence
    assert "nvmlDeviceGetEccMode" not in answers.devices[5] if device else not answers.devices


def test_a_child_killed_from_outside_is_a_crash(library: Path, tmp_path: Path) -> None:
    document = healthy_h100()
    document["init"] = SLEEP
    between = "import os; os.kill(session._pid, 9)"
    crashed = audit(library, document, tmp_path, between=between).answers.crashed
    assert crashed is not None
    assert (crashed.signal, crashed.how) == (9, "SIGKILL")


def test_one_gpu_of_eight_is_lost(library: Path, tmp_path: Path) -> None:
    document = healthy_h100()
    document["devices"][3] = {"nvmlDeviceGetHandleByIndex_v2": {"e": 15}}
    answers = audit(library, document, tmp_path).answers
    assert answers.problem() is None
    assert list(answers.devices[3]) == ["nvmlDeviceGetHandleByIndex_v2"]
    assert answers.of_device(3, "nvmlDeviceGetName").gone
    assert [answers.of_device(i, "nvmlDeviceGetName").ok for i in range(8)].count(False) == 1
    assert "nvmlDeviceGetP2PStatus(3,2)" not in answers.devices[0]


def test_a_gpu_lost_after_its_handle_was_given(library: Path, tmp_path: Path) -> None:
    document = healthy_h100()
    lost = document["devices"][3]
    for call in set(lost) - {"nvmlDeviceGetHandleByIndex_v2"}:
        lost[call] = {"e": 15}
    answers = audit(library, document, tmp_path).answers
    codes = {call: one.e for call, one in answers.devices[3].items() if not one.ok}
    assert set(codes.values()) == {15}
    of_links = [call for call in lost if re.search(r"NvLink|FieldValues\([0-9]+,", call)]
    assert len(of_links) > NVLINKS  # the first link ends the questions about links
    assert set(codes) == set(lost) - set(of_links) - {HANDLE} | {"nvmlDeviceGetNvLinkState(0)"}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_change_nothing(
    library: Path, tmp_path: Path, closed: str
) -> None:
    path = write_document(tmp_path / "nvml.json", healthy_h100(2))
    script = (
        "import sys; from gpuaudit.host import nvml; from gpuaudit.host.answers import *\n"
        "answers = nvml.start(60).finish()\n"
        "open(sys.argv[1], 'wb').write(encode_answers(answers))"
    )
    subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", script, tmp_path / "out"],
        env=shim_env(library, path),
        check=True,
        timeout=90,
    )
    answers = decode_answers((tmp_path / "out").read_bytes())
    assert (len(answers.devices), answers.hung, answers.crashed) == (2, None, None)


def test_a_child_that_cannot_write_is_a_crash_with_a_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml, "LOG_BYTES", 16)
    crashed = nvml.start(AMPLE_S).finish().crashed
    assert crashed is not None
    assert (crashed.signal, crashed.text) == (None, "it ended without saying why")


def test_no_process_to_be_had_is_a_crash_with_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    answers = nvml.start(AMPLE_S).finish()
    crashed = answers.crashed
    assert crashed is not None
    assert crashed.how == "no process could be started: Resource temporarily unavailable"
    problem = answers.problem()
    assert problem is not None
    assert problem.kind == "child-failed"


def test_sessions_leave_no_descriptor_and_no_zombie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    before = set(os.listdir("/proc/self/fd"))
    sessions = [nvml.start(AMPLE_S) for _ in range(3)]
    for session in sessions:
        session.finish()
    pids = [session._pid for session in sessions]
    assert set(os.listdir("/proc/self/fd")) == before
    until = time.monotonic() + 20
    while nvml._left and time.monotonic() < until:
        nvml._reap_earlier()
    assert nvml._left == []
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_documents_survive_their_own_json(library: Path, tmp_path: Path) -> None:
    answers = audit(library, healthy_h100(2), tmp_path).answers
    assert decode_answers(encode_answers(answers)) == answers


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"schema": "gpuaudit.nvml/2"}, "$.schema"),
        ({"binding": 13}, "$.binding"),
        ({"init": {}}, "$.init"),
        ({"init": {"v": True, "e": 3}}, "$.init"),
        ({"init": {"e": 0}}, "$.init"),
        ({"init": {"e": "9"}}, "$.init.e"),
        ({"system": {"nvmlSystemGetDriverVersion": 5}}, "$.system['nvmlSystemGetDriverVersion']"),
        ({"devices": [{}, {"nvmlDeviceGetName": {"x": 1}}]}, "$.devices[1]['nvmlDeviceGetName']"),
        ({"devices": {}}, "$.devices"),
        ({"hung": {"call": "nvmlInit"}}, "$.hung"),
        ({"more": 1}, "more"),
    ],
)
def test_bad_documents_are_refused_with_their_path(change: Document, path: str) -> None:
    with pytest.raises(BadAnswers, match=re.escape(path)):
        decode_answers(json.dumps({**healthy_h100(1), **change}))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "gpuaudit.nvml/1"}'])
def test_half_documents_are_refused(text: str) -> None:
    with pytest.raises(BadAnswers):
        decode_answers(text)
