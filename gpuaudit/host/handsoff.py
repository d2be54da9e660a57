# SPDX-License-Identifier: Apache-2.0
"""What keeps NVML from changing the node it is asked about.

Opening NVML is not reading. Where the driver is installed and not loaded, libnvidia-ml has it
loaded through the setuid program nvidia-modprobe (NVIDIA driver README, "The nvidia-modprobe
utility"), and opening a stale /dev/nvidiactl makes the kernel load it. Run as root, the library
makes missing device files, sets mode and owner of existing ones back to what the driver's
parameters say, and makes /dev/nvidia-caps: seen with strace and libnvidia-ml 580.159.04 on an
H200, where a /dev/nvidia0 of mode 0600 had mode 0666 afterwards. An operator's setting would be
gone, and a GPU that jobs cannot open would be repaired for the moment of the audit.

So NVML is not opened where the driver is certainly not loaded (gpuaudit.host.unloaded), and the
child that asks it can make no device file, folder or link, rename or remove nothing, change no
mode, owner or extended attribute, start no program and load no module. It could still write to
files, which NVML needs (the names of its threads) and was not seen to do elsewhere.
"""

import ctypes
import os
import struct
from typing import Final

# Linux arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, which arm64
# uses. Names that only the first has were left out of the second as older forms of the others.
_X86_64: Final = {
    "execve": 59, "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86,
    "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93,
    "lchown": 94, "mknod": 133, "mount": 165, "umount2": 166, "init_module": 175,
    "delete_module": 176, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
    "lremovexattr": 198, "fremovexattr": 199, "mkdirat": 258, "mknodat": 259, "fchownat": 260,
    "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268,
    "finit_module": 313, "renameat2": 316, "execveat": 322, "fchmodat2": 452,
}  # fmt: skip
_AARCH64: Final = {
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
    "fremovexattr": 16, "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36,
    "linkat": 37, "renameat": 38, "umount2": 39, "mount": 40, "truncate": 45, "fchmod": 52,
    "fchmodat": 53, "fchownat": 54, "fchown": 55, "init_module": 105, "delete_module": 106,
    "execve": 221, "finit_module": 273, "renameat2": 276, "execveat": 281, "fchmodat2": 452,
}  # fmt: skip
# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64, include/uapi/linux/audit.h
FORBIDDEN: Final = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}

# Linux include/uapi/linux: prctl.h, seccomp.h, filter.h, bpf_common.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ERRNO with EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_AT_NUMBER, _AT_ARCHITECTURE = 0, 4  # in struct seccomp_data


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def filter_program(architecture: int, refused: tuple[int, ...]) -> bytes:
    """A seccomp filter that refuses these system calls with EPERM and allows all others."""
    count = len(refused)
    tests = [(_JUMP_IF_EQUAL, count - at, 0, number) for at, number in enumerate(refused)]
    steps = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_JUMP_IF_EQUAL, 0, count + 1, architecture),
        (_LOAD, 0, 0, _AT_NUMBER),
        *tests,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def machine() -> str:
    """The architecture of this process. uname says i686 under a 32-bit personality (setarch)."""
    name = os.uname().machine
    return "x86_64" if name in {"i386", "i686"} and ctypes.sizeof(ctypes.c_void_p) == 8 else name


def hands_off() -> bool:
    """Refuse this process, for good, the calls of FORBIDDEN.

    False where that is not possible: another architecture, or a kernel without seccomp filters.
    """
    known = FORBIDDEN.get(machine())
    if known is None:
        return False
    architecture, calls = known
    program = filter_program(architecture, tuple(calls.values()))
    libc = ctypes.CDLL(None)
    loaded = _Program(len(program) // 8, program)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    done: int = libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(loaded), 0, 0)
    return done == 0
