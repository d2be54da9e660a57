# SPDX-License-Identifier: Apache-2.0
"""The child that asks NVML: it leaves the audit's session, then asks and announces every call."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from msgspec import UNSET

from gpuaudit.host.answers import Answer
from gpuaudit.host.handsoff import hands_off
from gpuaudit.host.nvml_asked import (
    C2C_LINKS,
    C2C_STATUS,
    DEVICE_CALLS,
    FALLBACKS,
    FIELDS,
    IDENTITY_CALLS,
    LINK_FIELDS,
    OTHER_PIDS,
    PIDS_CALL,
    SECOND_CALLS,
    SYSTEM_CALLS,
    TIME_FIELDS,
    WORK_CALL,
)
from gpuaudit.host.nvml_calls import (
    NoBinding,
    Read,
    attempt,
    each,
    initialise,
    load_binding,
    of,
    without_driver,
)
from gpuaudit.host.nvml_events import COUNT, INIT, Event
from gpuaudit.host.nvml_fields import field_key, field_values
from gpuaudit.host.nvml_problems import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    LIBRARY_NOT_FOUND,
    NO_BINDING,
    NOT_SUPPORTED,
)

Emit: TypeAlias = Callable[[Event], None]
IMPORT = "import pynvml"
MAX_NVLINKS = 36
"""NVML_NVLINK_MAX_LINKS of nvml.h; the questions end at the first error."""
P2P_OK, P2P_READ, P2P_NVLINK = 0, 0, 2
"""NVML_P2P_STATUS_OK, NVML_P2P_CAPS_INDEX_READ (a tuple in the binding, by mistake), _NVLINK."""
ORPHAN_GRACE_S = 5.0
APART_S = 0.3
"""Between two readings of the clocks of a GPU at work. Eight GPUs take that long to be asked, one
takes 25 ms, in which a clock stays what it is."""


def ask(emit: Emit, *, unloaded: bool = False) -> None:
    """Ask everything, or only for the library where the driver is not loaded."""
    emit(Event(begin=IMPORT, at=time.monotonic()))
    try:
        nvml, release = load_binding()
    except NoBinding as error:
        emit(Event(answer=INIT, is_=Answer(e=NO_BINDING, t=str(error) or UNSET)))
        return
    emit(Event(binding=release))
    hands_off()
    put = _Asker(nvml, emit)
    started = put(None, INIT, without_driver if unloaded else initialise)
    if started.e != LIBRARY_NOT_FOUND and not unloaded:  # a mismatched library has a version
        put(None, "nvmlSystemGetNVMLVersion", of("nvmlSystemGetNVMLVersion"))
    if started.ok:
        _ask_node(put)


class _Asker:
    """Announces every question, asks it, and writes down the answer."""

    def __init__(self, nvml: Any, emit: Emit) -> None:
        self._nvml = nvml
        self._emit = emit

    def __call__(self, device: int | None, key: str, read: Read, *args: Any) -> Answer:
        self._emit(Event(begin=key, device=device, at=time.monotonic()))
        answer = attempt(self._nvml, read, *args)
        self._emit(Event(answer=key, device=device, is_=answer))
        return answer

    def fields(self, device: int, handle: Any, wanted: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Many fields in one call, which has the name of the first."""
        keys = [field_key(one) for one in wanted]
        self._emit(Event(begin=keys[0], device=device, at=time.monotonic()))
        answers = field_values(self._nvml, handle, wanted)
        for key, answer in zip(keys, answers, strict=True):
            self._emit(Event(answer=key, device=device, is_=answer))
        return answers


def _ask_node(put: _Asker) -> None:
    for key, read in SYSTEM_CALLS:
        put(None, key, read)
    count = put(None, COUNT, of("nvmlDeviceGetCount"))
    handles = _handles(put, count.v if count.ok else 0)
    for index, handle in handles.items():
        _ask_device(put, index, handle, IDENTITY_CALLS)
    began = time.monotonic()
    for index, handle in handles.items():
        _ask_device(put, index, handle, DEVICE_CALLS)
    for index, handle in handles.items():
        _ask_device(put, index, handle, OTHER_PIDS)
        _ask_links(put, index, handle)
        _ask_peers(put, index, handles)
    work = [_ask_work(put, index, handle) for index, handle in handles.items()]
    if any(work):
        time.sleep(max(0.0, began + APART_S - time.monotonic()))
    for index, handle in handles.items():
        _ask_device(put, index, handle, SECOND_CALLS)


def _handles(put: _Asker, count: int) -> dict[int, Any]:
    """Handles of the GPUs that can be reached. A handle is no JSON: its answer says true."""
    handles: dict[int, Any] = {}

    def read(nvml: Any, index: int) -> bool:
        handles[index] = of("nvmlDeviceGetHandleByIndex")(nvml, index)
        return True

    for index in range(count):
        put(index, "nvmlDeviceGetHandleByIndex_v2", read, index)
    return handles


def _ask_device(put: _Asker, index: int, handle: Any, calls: tuple[tuple[str, Read], ...]) -> None:
    for key, read in calls:
        answer = put(index, key, read, handle)
        if answer.e == FUNCTION_NOT_FOUND and key in FALLBACKS:
            put(index, *FALLBACKS[key], handle)


def _ask_work(put: _Asker, index: int, handle: Any) -> bool:
    """Whether the GPU is at work, which makes its clocks worth a second reading."""
    key, read = WORK_CALL
    used, pids = put(index, key, read, handle), put(index, *PIDS_CALL, handle)
    return bool(pids.ok and pids.v) or bool(used.ok and used.v["gpu"])


def _ask_links(put: _Asker, index: int, handle: Any) -> None:
    """Fields of all links together, then of each link that is there.

    A field is asked of the other links if the first one that is up has it: an H200 has four of ten.
    """
    put.fields(index, handle, TIME_FIELDS)
    c2c = put.fields(index, handle, FIELDS)[FIELDS.index(C2C_LINKS)]
    if c2c.ok and c2c.v:
        put.fields(index, handle, [(C2C_STATUS, link) for link in range(c2c.v)])
    states = _link_states(put, index, handle)
    up = next((link for link, state in states.items() if state), 0)
    if states:
        put(index, *each("NvLinkRemoteDeviceType", (up,))[0], handle)
        first = put.fields(index, handle, [(field, up) for field in LINK_FIELDS])
        known = [f for f, answer in zip(LINK_FIELDS, first, strict=True) if not _lacking(answer)]
        rest = [(field, link) for link in states if link != up for field in known]
        if rest:
            put.fields(index, handle, rest)


def _lacking(answer: Answer) -> bool:
    """The GPU or its driver does not have this field at all."""
    return answer.e in {INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND}


def _link_states(put: _Asker, index: int, handle: Any) -> dict[int, Any]:
    """State by link. The first number that is no link is an invalid argument (H200: 18)."""
    states = {}
    for link, (key, read) in enumerate(each("NvLinkState", *((n,) for n in range(MAX_NVLINKS)))):
        answer = put(index, key, read, handle)
        if answer.ok:
            states[link] = answer.v
        elif not states or answer.e != NOT_SUPPORTED:
            break
    return states


def _ask_peers(put: _Asker, index: int, handles: dict[int, Any]) -> None:
    """Once a pair, because NVML answers for the pair; whether it reads at all, if not by NVLink.

    One such question takes 1.8 ms on an H200, which is 100 ms for the 56 ways between eight.
    """
    for peer, handle in handles.items():
        for caps in (P2P_NVLINK, P2P_READ) if peer > index else ():
            key = f"nvmlDeviceGetP2PStatus({peer},{caps})"
            answer = put(index, key, of("nvmlDeviceGetP2PStatus", caps), handles[index], handle)
            if answer.gone or (answer.ok and answer.v == P2P_OK):
                break


def run(emit: Emit, pipe: int, deadline_s: float, *, unloaded: bool = False) -> NoReturn:
    """The child's whole life, right after fork; never returns.

    os._exit: the parent's buffers and exit handlers are not ours to run. The pipe is closed
    first, because the kernel may take seconds to tear down the last client of a driver.
    """
    try:
        detach(pipe, deadline_s)
        ask(emit, unloaded=unloaded)
        emit(Event(done=True))
    except BaseException as error:  # noqa: BLE001 - nothing may escape into the parent's code
        with contextlib.suppress(Exception):
            emit(Event(failed=f"{type(error).__name__}: {error}"[:500]))
    finally:
        with contextlib.suppress(OSError):
            os.close(pipe)
        os._exit(0)


def detach(pipe: int, deadline_s: float) -> None:
    """Keep nothing of the audit but `pipe`, leave its session, and never outlive it for long.

    A child asleep in the driver may stay for ever: it must not hold the audit's standard output
    open, nor any lock. The alarm ends a child whose parent was killed before it could abandon it.
    """
    os.setsid()
    for one in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        with contextlib.suppress(OSError):  # the C library keeps two real-time signals
            signal.signal(one, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.setitimer(signal.ITIMER_REAL, deadline_s + ORPHAN_GRACE_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for descriptor in _open_descriptors() - {0, 1, 2, pipe}:
        with contextlib.suppress(OSError):  # the folder's own descriptor is closed by now
            os.close(descriptor)


def _open_descriptors() -> set[int]:
    """Those of this process; closing every possible number would take seconds in a container."""
    try:
        return {int(name) for name in os.listdir("/proc/self/fd")}
    except OSError:
        return set(range(3, 4096))
