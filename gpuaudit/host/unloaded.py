# SPDX-License-Identifier: Apache-2.0
"""Whether the NVIDIA driver is not loaded, so that asking NVML would load it."""

from typing import Protocol

MODULES = "/sys/module"
DRIVERS = (
    "/sys/module/nvidia",
    "/proc/driver/nvidia/version",
    "/sys/module/nvgpu",
    "/dev/dxg",
)
"""The module, what it shows, Jetson's, and the way to it in WSL, where it runs in the host."""


class Places(Protocol):
    """The part of a Host that tells whether something is there. Both raise Unavailable."""

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder."""

    def exists(self, path: str) -> bool:
        """False only when it is known not to be there."""


def certainly_unloaded(places: Places) -> bool:
    """Whether modules are listed and the driver is nowhere. Raises Unavailable."""
    return bool(places.list(MODULES)) and not any(places.exists(path) for path in DRIVERS)
