# SPDX-License-Identifier: Apache-2.0
import pytest

from gpuaudit.facts.kernelfiles import Kept
from gpuaudit.facts.kernellog import Line, log_of
from gpuaudit.facts.xid import MOST_ROWS, Tally, Xid, Xids, address, xids
from gpuaudit.facts.xidcatalogue import ACTIONS, GPU, SWITCH, catalogue, meaning_of

KINDS = {"fail", "warn", "application", "information", "by-text"}
FAULTS = {"application", "driver", "hardware", "fabric", "system", "information"}
LOADING = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06"


def found(*texts: str) -> Xids:
    data = "".join(f"3,{n},{n * 1000000},-;{text}\n" for n, text in enumerate(texts))
    return xids(log_of(Kept(data.encode(), "test", complete=True)))


def gpu(code: int, rest: str = "", where: str = "PCI:0000:17:00") -> str:
    return f"NVRM: Xid ({where}): {code}{rest}"


def only(*texts: str) -> Xid:
    (one,) = found(*texts).gpus
    return one


def kinds(*texts: str) -> dict[int, str]:
    return {one.meaning.code: one.kind for one in found(*texts).gpus}


@pytest.mark.parametrize(
    ("where", "device"),
    [
        ("PCI:0000:9b:00", "0000:9b:00.0"),
        ("PCI:0000:9B:00", "0000:9b:00.0"),
        ("0000:9b:00", "0000:9b:00.0"),
        ("PCI:9b:00", "0000:9b:00.0"),
        ("0003:00", "0000:03:00.0"),
        ("PCI:0000:9b:00.0", "0000:9b:00.0"),
        ("PCI:0009:01:00", "0009:01:00.0"),
        ("PCI:00010000:01:00", "10000:01:00.0"),
        ("PCI:0000:89:00 GPU-I:09", "0000:89:00.0 instance 09"),
    ],
)
def test_addresses_as_sysfs_writes_them(where: str, device: str) -> None:
    assert only(gpu(13, ", Graphics", where)).device == device


def test_an_address_of_another_form_is_left_as_it_is() -> None:
    assert address("..:.") == "..:."


@pytest.mark.parametrize(
    ("rest", "processes", "detail"),
    [
        (", pid=77, name=train, Timeout after 6s", ("train (77)",), "Timeout after 6s"),
        (", pid='<unknown>', name=<unknown>, gone.", (), "gone."),
        (", pid=77, Ch 00000010, intr 1", ("77",), "Ch 00000010, intr 1"),
        (", Channel 00000001", (), "Channel 00000001"),
        ("", (), ""),
        (", pid=77, name=a b, x", ("a b (77)",), "x"),
    ],
)
def test_who_and_what(rest: str, processes: tuple[str, ...], detail: str) -> None:
    one = only(gpu(119, rest))
    assert (one.processes, one.detail) == (processes, detail)


def test_lines_of_one_moment_are_one_burst() -> None:
    def bursts(*heads: str) -> int:
        data = "".join(f"{head} {gpu(13)}\n" for head in heads).encode()
        return xids(log_of(Kept(data, "test", complete=True))).gpus[0].bursts

    assert bursts("[  1.000000]", "[  9.000000]", "[ 30.000000]", "[ 31.000000]") == 2
    assert bursts("[Mon Nov  2 10:00:00 2026]", "[Mon Nov  2 10:00:00 2026]") == 1
    assert bursts("[Mon Nov  2 10:00:00 2026]", "[Mon Nov  2 10:30:00 2026]") == 2


def test_no_recovery_of_a_whole_gpu_settles_its_instances() -> None:
    changed = gpu(154, ", GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    of_instance = gpu(46, where="PCI:0000:17:00 GPU-I:01")
    rows = found(of_instance, changed).gpus
    assert [one.settled for one in rows if one.meaning.code == 46] != [""]


def test_a_code_of_a_gpu_is_one_row() -> None:
    lines = [gpu(31, f", pid={pid}, name=train, Ch {pid}") for pid in (7, 8, 7, 9, 10, 11, 12)]
    one = only(*lines, gpu(31, ", pid=7, name=train, last"))
    assert one.times == 8
    assert one.processes == ("train (7)", "train (8)", "train (9)", "train (10)", "train (11)")
    assert (one.first.seconds, one.last.seconds, one.detail) == (0.0, 7.0, "last")
    assert len(found(gpu(31), gpu(31, where="PCI:0000:18:00"), gpu(13)).gpus) == 3


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-6f9619ff-8b86-4d11-b42d-00cf4fc964ff",
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (nowhere): 13, x",
        "NVRM: Xid (PCI:0000:9b:00): abc, x",
        "NVRM: Xid (PCI:0000:9b:00): 13x",
        "dcgm saw NVRM: Xid (PCI:0000:9b:00): 79, x",
        "nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): 20034, Severity 1 Engine instance 30",
        "nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): 20034, Data {0x1, 0x2}",
        "The NVIDIA GPU 0000:9b:00.0 fallen off the bus",
    ],
)
def test_lines_that_are_no_report(text: str) -> None:
    assert found(text) == Xids(gpus=(), switches=())


def test_a_lost_gpu_without_a_code() -> None:
    lines = ("NVRM: The NVIDIA GPU 0000:17:00.0", "NVRM: fallen off the bus and is not responding")
    one = only(*lines)
    assert (one.device, one.meaning.code, one.times, one.kind) == ("0000:17:00.0", 79, 1, "fail")
    assert only("NVRM: GPU 0000:17:00.0: GPU has fallen off the bus.").meaning.code == 79
    assert only(gpu(79), "NVRM: GPU 0000:17:00.0: GPU has fallen off the bus.").times == 1


def test_a_reload_of_the_driver_makes_it_past() -> None:
    assert not only(LOADING, gpu(119)).settled
    assert "loaded again" in only(gpu(119), LOADING).settled
    assert not only(gpu(119), LOADING, gpu(119)).settled


def test_the_driver_says_that_nothing_is_needed_any_more() -> None:
    change = ", GPU recovery action changed from"
    needs = gpu(154, f"{change} 0x0 (None) to 0x2 (Node Reboot Required)")
    done = gpu(154, f"{change} 0x2 (Node Reboot Required) to 0x0 (None)")
    other = gpu(95, where="PCI:0000:18:00")
    assert kinds(gpu(79), needs) == {79: "fail", 154: "fail"}
    after = {(x.device, x.meaning.code): x for x in found(gpu(95), needs, other, done).gpus}
    assert "Xid 154" in after["0000:17:00.0", 95].settled
    assert after["0000:17:00.0", 154].kind == "information"
    assert after["0000:18:00.0", 95].settled == ""
    again = {x.meaning.code: x.settled for x in found(gpu(95), done, gpu(95)).gpus}
    assert again[95] == ""
    assert kinds(gpu(154, ", something else")) == {154: "warn"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x1)", "fail"),
        ("RLW_REMAP            Nonfatal XC1 i0 Link 08 (0x1)", "warn"),
        ("RLW_REMAP  Non-fatal XC1", "warn"),
        ("something", "warn"),
    ],
)
def test_nvlink_errors_say_themselves_how_grave_they_are(text: str, kind: str) -> None:
    one = only(gpu(149, f", {text}"))
    assert one.kind == kind
    assert ("reset" in one.advice) is (kind == "fail")


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ((48,), "fail"),
        ((48, 94), "warn"),
        ((94, 48), "warn"),
        ((48, 48, 94), "fail"),
        ((48, 95), "fail"),
    ],
)
def test_a_double_bit_error_is_milder_when_contained(codes: tuple[int, ...], kind: str) -> None:
    assert kinds(*map(gpu, codes))[48] == kind


@pytest.mark.parametrize(
    ("code", "word", "kind"),
    [
        (20034, "Fatal", "fail"),
        (20034, "Non-fatal", "warn"),
        (22013, "Non-fatal", "information"),
        (10004, "Non-fatal", "warn"),
        (99999, "Non-fatal", "information"),
        (99999, "Fatal", "fail"),
    ],
)
def test_switches_say_themselves_how_grave_it_is(code: int, word: str, kind: str) -> None:
    line = (
        f"nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): {code}, {word}, Link 30 LTSSM Fault Up (First)"
    )
    (one,) = found(line).switches
    assert (one.device, one.label, one.kind) == ("0000:a6:00.0", f"SXid {code}", kind)
    assert one.detail == "Link 30 LTSSM Fault Up (First)"


def test_the_gravest_comes_first_and_the_past_last() -> None:
    codes = [one.meaning.code for one in found(gpu(46), LOADING, gpu(31), gpu(63), gpu(79)).gpus]
    assert codes == [79, 63, 31, 46]


def test_made_up_devices_do_not_fill_the_memory() -> None:
    tally = Tally()
    lines = (gpu(13, where=f"PCI:{n:08x}:01:00") for n in range(MOST_ROWS + 100))
    tally.add(Line(None, None, line) for line in lines)
    rows = tally.of(GPU)
    assert len(rows) == MOST_ROWS + 1
    assert sum(one.times for one in rows) == MOST_ROWS + 100


def test_every_published_code_has_a_row() -> None:
    rows = catalogue()
    assert {f"{GPU}{code}" for code in range(1, 173)} <= set(rows)
    assert len([key for key in rows if key.startswith(SWITCH)]) >= 80


@pytest.mark.parametrize("key", sorted(catalogue()))
def test_rows_use_the_words_of_the_catalogue(key: str) -> None:
    row = catalogue()[key]
    assert row.kind in KINDS
    assert row.fault in FAULTS
    assert row.action in ACTIONS
    assert row.meaning
    assert row.applies
    if row.kind == "fail":
        assert row.action not in {"none", "restart-app", "check-app"}


@pytest.mark.parametrize(
    ("code", "kind", "fault"),
    [
        (13, "application", "application"),
        (31, "application", "application"),
        (45, "application", "application"),
        (48, "fail", "hardware"),
        (63, "warn", "hardware"),
        (64, "fail", "hardware"),
        (74, "fail", "fabric"),
        (79, "fail", "hardware"),
        (94, "warn", "hardware"),
        (95, "fail", "hardware"),
        (119, "fail", "driver"),
        (999, "unknown", "unknown"),
    ],
)
def test_the_codes_that_people_meet(code: int, kind: str, fault: str) -> None:
    row = meaning_of(code)
    assert (row.kind, row.fault) == (kind, fault)
