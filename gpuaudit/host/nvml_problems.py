# SPDX-License-Identifier: Apache-2.0
"""What NVML error codes mean and what to do about them.

Codes are nvmlReturn_t of nvml.h (https://docs.nvidia.com/deploy/nvml-api/, group
nvmlDeviceEnumvs). Negative codes are ours: no driver returns them.
"""

from typing import Final, NamedTuple

INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
ARGUMENT_VERSION_MISMATCH: Final = 25
DEPRECATED: Final = 26
GPU_NOT_FOUND: Final = 28
NO_BINDING: Final = -1
BINDING_FAILED: Final = -2
NO_ANSWER: Final = -3

_TEXT: Final = {
    NO_BINDING: "the Python binding nvidia-ml-py is not installed",
    BINDING_FAILED: "the Python binding failed",
    NO_ANSWER: "no answer",
    1: "not initialised",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    5: "already initialised",
    6: "not found",
    7: "buffer too small",
    8: "a power cable is not attached",
    9: "driver not loaded",
    10: "timeout",
    11: "interrupt problem",
    12: "NVML library not found",
    13: "function not in this library",
    14: "corrupted InfoROM",
    15: "GPU is lost",
    16: "GPU needs a reset",
    17: "refused by the operating system",
    18: "driver and library versions differ",
    19: "in use",
    20: "out of memory",
    21: "no data",
    22: "not available with vGPU ECC",
    23: "not enough resources",
    24: "frequency not supported",
    25: "argument version not known to this library",
    26: "deprecated",
    27: "not ready",
    28: "GPU not found",
    29: "invalid state",
    30: "reset type not supported",
    999: "unknown error",
}


class Problem(NamedTuple):
    """Why NVML cannot be used: a kind for programs, a sentence for people."""

    kind: str
    sentence: str


_PROBLEMS: Final = {
    12: Problem(
        "library-missing",
        "The NVML library libnvidia-ml.so.1 is not installed, so no GPU can be asked. "
        "Install the NVIDIA driver's user-space libraries.",
    ),
    9: Problem(
        "driver-not-loaded",
        "The NVIDIA kernel driver is not loaded, so no GPU is usable. "
        "Run modprobe nvidia, and read dmesg if that fails.",
    ),
    18: Problem(
        "version-mismatch",
        "The loaded kernel driver and the NVML library have different versions, usually after an "
        "update without a reboot. Reload the nvidia modules or reboot.",
    ),
    4: Problem(
        "no-permission",
        "This user may not ask NVML. Run as root, or allow read and write on /dev/nvidiactl and "
        "/dev/nvidia0 and following.",
    ),
    15: Problem(
        "gpu-lost",
        "A GPU is lost: it has fallen off the PCIe bus and cannot be reached. "
        "Drain the node, power-cycle it, and look for Xid 79 in the kernel log.",
    ),
    28: Problem(
        "gpu-not-found",
        "NVML cannot find a GPU that it knew. Compare lspci with the expected GPUs and read the "
        "kernel log, then reboot.",
    ),
    16: Problem(
        "reset-required",
        "A GPU refuses to work until it is reset. Stop its jobs and run nvidia-smi --gpu-reset, "
        "or reboot.",
    ),
    10: Problem(
        "timeout",
        "The driver gave up waiting for a GPU, which is busy or sick. "
        "Run again, and read the kernel log for Xid lines if it stays.",
    ),
    999: Problem(
        "unknown-error",
        "The driver failed for a reason that NVML does not name, so nothing it says can be "
        "trusted. Read the kernel log for NVRM lines.",
    ),
    NO_BINDING: Problem(
        "binding-missing",
        "The Python binding nvidia-ml-py is not installed, so NVML was not asked. "
        "Run pip install nvidia-ml-py.",
    ),
}
_NO_LIBRARY_HERE: Final = Problem(
    "library-missing",
    "The kernel driver is loaded but libnvidia-ml.so.1 is not found. Install the user-space "
    "libraries of the same version; in a container, start it with the NVIDIA runtime.",
)
_NO_DEVICES_HERE: Final = Problem(
    "driver-unreachable",
    "The kernel driver is loaded but NVML cannot reach it. Check that /dev/nvidiactl exists: "
    "nvidia-persistenced makes it, and so does nvidia-smi run as root; gpuaudit does not. "
    "In a container, start it with the NVIDIA runtime.",
)


def error_text(code: int) -> str:
    """A short text for an NVML error code."""
    return _TEXT.get(code, f"error {code}")


def nvml_problem(code: int, *, driver_loaded: bool | None = None, detail: str = "") -> Problem:
    """What an error of nvmlInit or of a whole GPU means.

    `driver_loaded` says whether /proc/driver/nvidia/version exists (None: not known).
    """
    if driver_loaded and code in {9, 12}:
        return _NO_DEVICES_HERE if code == 9 else _NO_LIBRARY_HERE
    if code == NO_BINDING and detail:
        return Problem("binding-wrong", detail)
    return _PROBLEMS.get(code) or Problem(
        f"error-{code}",
        f"NVML failed: {detail or error_text(code)} (code {code}). "
        "Read the kernel log for NVRM lines.",
    )


def hung_problem(subject: str, after_s: float) -> Problem:
    """NVML was abandoned at its deadline."""
    return Problem(
        "hung",
        f"NVML did not answer in time: {subject} was abandoned after {after_s:.1f} s, and nothing "
        "after it was asked. Without persistence mode each GPU takes seconds to open: run again "
        "with a longer --timeout. If it stays, read the kernel log for Xid lines and drain it.",
    )


def crashed_problem(subject: str, signal_name: str) -> Problem:
    """A signal ended the child that asks NVML."""
    return Problem(
        "crashed",
        f"The NVML library crashed in {subject} ({signal_name}), and nothing after it was asked. "
        "Check that the library belongs to the loaded driver, then reinstall the driver.",
    )


def child_problem(subject: str, text: str) -> Problem:
    """The child that asks NVML could not do its work."""
    return Problem(
        "child-failed",
        f"NVML could not be asked: the process for it failed in {subject} ({text}). "
        "Check the limits on processes and memory, then run again.",
    )
