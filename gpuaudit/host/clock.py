# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows of the quality of its clock: adjtimex(2) without a mode, which only reads.

Runs in the patient child, so that no audit waits for the import of ctypes.
"""

import os
import struct
import sys

MAX_ERROR_AT, STATUS_AT = 24, 40
"""Offsets in struct timex where long has 64 bits (Linux include/uapi/linux/timex.h)."""

SIZE = 256
"""struct timex has 208 bytes."""


def adjtimex(_: str) -> dict[str, int]:
    """The upper bound of the error in microseconds, and the status bits. Raises OSError."""
    if sys.maxsize < 1 << 32:
        raise OSError(38, "struct timex is laid out differently on 32 bits")
    import ctypes

    buffer = ctypes.create_string_buffer(SIZE)
    library = ctypes.CDLL(None, use_errno=True)
    if library.adjtimex(buffer) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    (max_error,) = struct.unpack_from("=q", buffer.raw, MAX_ERROR_AT)
    (status,) = struct.unpack_from("=i", buffer.raw, STATUS_AT)
    return {"max_error_us": max_error, "status": status}
