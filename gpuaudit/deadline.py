# SPDX-License-Identifier: Apache-2.0
"""A time limit on a block of code, by the process's real-time interval timer.

The timer interrupts Python code and system calls that a signal can interrupt. Reads that may
sleep uninterruptibly are made by children (gpuaudit.host.patient, gpuaudit.host.nvml).
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTimeError(BaseException):
    """The limit was reached. A BaseException, so that no check swallows it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block after `seconds`. No limit outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError
