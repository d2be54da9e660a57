# SPDX-License-Identifier: Apache-2.0
"""Ask NVML in a child process with a deadline, so that a hung driver cannot hang the audit.

nvmlInit or any call after it can sleep in the kernel where no signal arrives. The child therefore
notes every call before it makes it, in memory shared with the parent, and the parent never waits
for the child: at the deadline it takes what is there and leaves.
"""

import mmap
import os
import select
import signal
import time
from typing import Any, NoReturn

import msgspec

from gpuaudit.host.answers import SCHEMA, Answer, Crashed, Hung, NvmlAnswers
from gpuaudit.host.nvml_events import COUNT, INIT, Event
from gpuaudit.host.nvml_problems import NO_ANSWER
from gpuaudit.host.patient import pipe

LOG_BYTES = 16 << 20
"""Shared memory for the events, of which only the written part takes room: 16 GPUs write 1 MB."""
REAP_S = 0.5
UNKNOWN_STATUS = -1
BEFORE_THE_FIRST = Event(begin="fork")
_left: list[int] = []
"""Children that were left before they ended."""


class NvmlSession:
    """One child that asks NVML. `finish` may be called at any later time."""

    def __init__(self, pid: int | None, pipe: int, log: mmap.mmap, deadline_s: float) -> None:
        self._pid = pid
        self._pipe = pipe
        self._log = log
        self._started = time.monotonic()
        self._until = self._started + deadline_s
        self._answers: NvmlAnswers | None = None

    def finish(self) -> NvmlAnswers:
        """Wait for the child, at most until its deadline; abandon it then."""
        if self._answers is None:
            ended = _wait_for_end(self._pipe, self._until)
            os.close(self._pipe)
            self._answers = self._judge(ended=ended)
            self._log.close()
        return self._answers

    def _judge(self, *, ended: bool) -> NvmlAnswers:
        events = _events(self._log)
        if any(event.done for event in events):
            _leave(self._pid)
            return _document(events)
        begun = next((event for event in reversed(events) if event.begin), BEFORE_THE_FIRST)
        call, device = begun.begin or "", begun.device
        if ended:
            how = _cause(events, _status(self._pid))
            return _document(events, crashed=Crashed(call=call, device=device, **how))
        _kill(self._pid)
        after_s = round(time.monotonic() - max(begun.at, self._started), 3)
        return _document(events, hung=Hung(call=call, device=device, after_s=after_s))


def start(deadline_s: float, *, unloaded: bool = False) -> NvmlSession:
    """Fork the child and return at once. The deadline counts from here.

    A driver that is `unloaded` is not opened, because that would load it.
    """
    _reap_earlier()
    log = mmap.mmap(-1, LOG_BYTES)
    reading, writing = pipe()
    pid: int | None = None
    try:
        pid = os.fork()
    except OSError as error:
        _write(log, Event(failed=f"no process could be started: {error.strerror}"))
    if pid == 0:
        _be_the_child(log, writing, deadline_s, unloaded=unloaded)
    os.close(writing)
    return NvmlSession(pid, reading, log, deadline_s)


def _be_the_child(log: mmap.mmap, pipe: int, deadline_s: float, *, unloaded: bool) -> NoReturn:
    """Whatever happens here must not return into the parent's code."""
    try:
        from gpuaudit.host import nvml_child  # 7 ms that only the child spends

        nvml_child.run(lambda event: _write(log, event), pipe, deadline_s, unloaded=unloaded)
    finally:
        os._exit(1)


def _write(log: mmap.mmap, event: Event) -> None:
    log.write(msgspec.json.encode(event) + b"\n")


def _events(log: mmap.mmap) -> list[Event]:
    """The events written so far; the last line may be half a line."""
    written = log[: max(log.find(b"\0"), 0)]
    whole = written[: written.rfind(b"\n") + 1]
    return msgspec.json.Decoder(Event).decode_lines(whole)


def _wait_for_end(pipe: int, until: float) -> bool:
    """Whether the child closed its end of the pipe, which it does when it is done or dies."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(max(until - time.monotonic(), 0.0) * 1000))


def _document(
    events: list[Event], *, hung: Hung | None = None, crashed: Crashed | None = None
) -> NvmlAnswers:
    answered: dict[int | None, dict[str, Answer]] = {None: {}}
    for event in events:
        if event.answer and event.is_:
            answered.setdefault(event.device, {})[event.answer] = event.is_
    system = answered[None]
    return NvmlAnswers(
        schema=SCHEMA,
        binding=next((event.binding for event in events if event.binding), None),
        init=system.pop(INIT, Answer(e=NO_ANSWER)),
        system=system,
        devices=tuple(answered.get(index, {}) for index in range(_count(system))),
        hung=hung,
        crashed=crashed,
    )


def _count(system: dict[str, Answer]) -> int:
    count = system.get(COUNT)
    return count.v if count is not None and count.ok else 0


def _cause(events: list[Event], status: int | None) -> dict[str, Any]:
    said = next((event.failed for event in events if event.failed), None)
    if status is not None and os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"signal": None, "text": said or "it ended without saying why"}


def _leave(pid: int | None) -> None:
    """Reap the child if it is gone already, else at a later start; never wait for it."""
    if pid is not None and _ended(pid) is None:
        _left.append(pid)


def _kill(pid: int | None) -> None:
    if pid is not None and _ended(pid) is None:
        os.kill(pid, signal.SIGKILL)
        _leave(pid)


def _reap_earlier() -> None:
    _left[:] = [pid for pid in _left if _ended(pid) is None]


def _status(pid: int | None) -> int | None:
    """The wait status of a child that has closed its pipe; it is a zombie in a moment."""
    until = time.monotonic() + REAP_S
    while pid is not None:
        status = _ended(pid)
        if status is not None:
            return status if status != UNKNOWN_STATUS else None
        if time.monotonic() > until:
            _kill(pid)
            return None
        time.sleep(0.001)
    return None


def _ended(pid: int) -> int | None:
    """The wait status, UNKNOWN_STATUS when somebody else reaped the child, None while it lives."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN_STATUS
    return status if reaped else None
