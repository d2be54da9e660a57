# SPDX-License-Identifier: Apache-2.0
"""How an NVML call is read through nvidia-ml-py, the only module that imports pynvml.

Runs in the child. No call here changes the state of a device.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any, TypeAlias

from gpuaudit.host.answers import Answer
from gpuaudit.host.nvml_problems import (
    ARGUMENT_VERSION_MISMATCH,
    BINDING_FAILED,
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    LIBRARY_NOT_FOUND,
    error_text,
)
from gpuaudit.host.nvml_structs import (
    CONF_COMPUTE_V1,
    FABRIC_V2,
    FABRIC_V3,
    ConfComputeSettings,
    FabricV1,
    FabricV2,
    FabricV3,
)

Read: TypeAlias = Callable[..., Any]
"""(pynvml, device handle) -> value; raises NVMLError or Missing."""

LIBRARY = "libnvidia-ml.so.1"
GSP_VERSION_BYTES = 64
"""NVML_GSP_FIRMWARE_VERSION_BUF_SIZE of nvml.h."""


class Missing(Exception):
    """The installed binding is older than this call."""


class NoBinding(Exception):
    """Nvidia-ml-py cannot be used; the text says why, if it is more than not installed."""


def load_binding() -> tuple[Any, str | None]:
    """The module pynvml and its release. Raises NoBinding.

    PyPI's pynvml before release 12 is a package of the same name with code of its own.
    """
    try:
        import pynvml  # 20 ms that only the child spends
    except ImportError:
        raise NoBinding("") from None
    if not hasattr(pynvml, "__path__") and hasattr(pynvml, "NVMLError"):
        return pynvml, _release(os.path.dirname(str(pynvml.__file__)))
    raise NoBinding(
        f"The Python module {pynvml.__file__} is not NVIDIA's binding, so NVML was not asked. "
        "Run pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py."
    )


def _release(folder: str) -> str | None:
    """From the name of the folder beside the module: importlib.metadata costs 15 ms."""
    names = [one for one in os.listdir(folder) if one.startswith("nvidia_ml_py-")]
    return names[0].split("-")[1].removesuffix(".dist").removesuffix(".egg") if names else None


def symbol(nvml: Any, name: str) -> Any:
    """A name of the binding. Raises Missing."""
    try:
        return getattr(nvml, name)
    except AttributeError:
        raise Missing(name) from None


def tidy(value: Any) -> Any:
    """What the binding returned as plain JSON; the version of a struct is of no interest."""
    if isinstance(value, ctypes.Structure):
        names = (field[0] for field in value._fields_)
        return {name: tidy(getattr(value, name)) for name in names if name != "version"}
    if isinstance(value, ctypes.Array):
        return bytes(value).hex()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [tidy(item) for item in value]
    return value


def attempt(nvml: Any, read: Read, *args: Any) -> Answer:
    """The answer to one call. Whatever the binding raises is an answer too.

    Codes are compared by value: NVMLError defines __eq__ without __hash__.
    """
    try:
        return Answer(v=tidy(read(nvml, *args)))
    except Missing:
        return Answer(e=FUNCTION_NOT_FOUND, t="not in the installed nvidia-ml-py")
    except nvml.NVMLError as error:
        return Answer(e=error.value, t=error_text(error.value))
    except Exception as error:  # noqa: BLE001 - ctypes and unicode errors of a mismatched binding
        return Answer(e=BINDING_FAILED, t=f"{type(error).__name__}: {error}"[:200])


def of(name: str, *fixed: Any) -> Read:
    """Read by the binding's function of this name; `fixed` follows the handle."""
    return lambda nvml, *args: symbol(nvml, name)(*args, *fixed)


def whole(*names: str) -> list[tuple[str, Read]]:
    """Getters without a handle, by the name behind nvml."""
    return [(f"nvml{name}", of(f"nvml{name}")) for name in names]


def plain(*names: str) -> list[tuple[str, Read]]:
    """Getters that take a handle and nothing else."""
    return [(f"nvmlDeviceGet{name}", of(f"nvmlDeviceGet{name}")) for name in names]


def each(name: str, *arguments: tuple[int, ...]) -> list[tuple[str, Read]]:
    """One getter with several arguments, which become part of the key."""
    full = f"nvmlDeviceGet{name}"
    return [(f"{full}({','.join(map(str, one))})", of(full, *one)) for one in arguments]


def initialise(nvml: Any) -> bool:
    """Load the library and open the driver."""
    symbol(nvml, "nvmlInit")()
    return True


def without_driver(nvml: Any) -> bool:
    """Raise what nvmlInit would say without a driver, having opened nothing but the library."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise nvml.NVMLError(LIBRARY_NOT_FOUND) from None
    raise nvml.NVMLError(DRIVER_NOT_LOADED)


def pci_info(nvml: Any, handle: Any) -> Any:
    """The PCI address; the legacy form of it has too few digits for the domain."""
    info = tidy(symbol(nvml, "nvmlDeviceGetPciInfo")(handle))
    return {name: value for name, value in info.items() if name != "busIdLegacy"}


def memory_info(nvml: Any, handle: Any) -> Any:
    """Version 2 of the struct: version 1 counts reserved memory as used."""
    version = symbol(nvml, "nvmlMemory_v2")
    return symbol(nvml, "nvmlDeviceGetMemoryInfo")(handle, version=version)


def sram_ecc(nvml: Any, handle: Any) -> Any:
    """The struct is an argument and its version is set by its constructor."""
    status = symbol(nvml, "c_nvmlEccSramErrorStatus_v1_t")()
    symbol(nvml, "nvmlDeviceGetSramEccErrorStatus")(handle, ctypes.byref(status))
    return status


def gsp_mode(nvml: Any, handle: Any) -> list[int]:
    """Own variables: the binding's default arguments are shared by all calls."""
    enabled, default = ctypes.c_uint(), ctypes.c_uint()
    read = symbol(nvml, "nvmlDeviceGetGspFirmwareMode")
    read(handle, ctypes.byref(enabled), ctypes.byref(default))
    return [enabled.value, default.value]


def gsp_version(nvml: Any, handle: Any) -> Any:
    """Own buffer: bindings before 12.570 want one."""
    version = ctypes.create_string_buffer(GSP_VERSION_BYTES)
    symbol(nvml, "nvmlDeviceGetGspFirmwareVersion")(handle, version)
    return version.value


def fabric_info(nvml: Any, handle: Any) -> Any:
    """Version 3 of the struct (driver 580), then 2 (driver 550)."""
    try:
        return _fabric(nvml, handle, FabricV3(version=FABRIC_V3))
    except nvml.NVMLError as error:
        if error.value != ARGUMENT_VERSION_MISMATCH:
            raise
        return _fabric(nvml, handle, FabricV2(version=FABRIC_V2))


def _fabric(nvml: Any, handle: Any, info: FabricV2 | FabricV3) -> Any:
    version = info.version >> 24
    symbol(nvml, "nvmlDeviceGetGpuFabricInfoV")(handle, ctypes.byref(info))
    return {**tidy(info), "version": version}


def fabric_info_before_550(nvml: Any, handle: Any) -> Any:
    """The first form of the call, without health."""
    info = FabricV1()
    symbol(nvml, "nvmlDeviceGetGpuFabricInfo")(handle, ctypes.byref(info))
    return info


def retired_pages(cause: int) -> tuple[str, Read]:
    """The number of pages; their addresses say nothing to an audit."""
    name = "nvmlDeviceGetRetiredPages"
    return f"{name}({cause})", lambda nvml, handle: len(symbol(nvml, name)(handle, cause))


def pids(kind: str) -> tuple[str, Read]:
    """Processes that hold a context of this kind."""
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    return name, lambda nvml, handle: [one.pid for one in symbol(nvml, name)(handle)]


def confidential_settings(nvml: Any) -> Any:
    """Own struct; the binding hands its code on instead of raising it."""
    info = ConfComputeSettings(version=CONF_COMPUTE_V1)
    code = symbol(nvml, "nvmlSystemGetConfComputeSettings")(ctypes.byref(info))
    if code:
        raise nvml.NVMLError(code)
    return info
