# SPDX-License-Identifier: Apache-2.0
"""Our own layout of nvmlGpuFabricInfo*_t, because the binding's was wrong for a long time.

nvml.h: clusterUuid has 16 bytes (NVML_GPU_FABRIC_UUID_LEN), nvmlGpuFabricState_t is an unsigned
char (the binding reads four bytes, three of them padding that nobody promises to clear), and a
version word is sizeof | version << 24. In nvidia-ml-py 12.560 clusterUuid has 80 bytes, so that
every state reads as 0; 12.570 corrected it in version 2, and 12.570 to 13.580 still have 80 in
version 1.
"""

import ctypes
from typing import Final

FABRIC_V2: Final = 0x2000024
FABRIC_V3: Final = 0x3000028
CONF_COMPUTE_V1: Final = 0x1000014
"""nvmlSystemConfComputeSettings_v1 of nvml.h."""


class FabricV1(ctypes.Structure):
    """Without health, since driver 525."""

    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_int),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
    )


class FabricV2(ctypes.Structure):
    """With health, since driver 550."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        *FabricV1._fields_,
        ("healthMask", ctypes.c_uint32),
    )


class FabricV3(ctypes.Structure):
    """With the summary of its health, since driver 580."""

    _fields_ = (*FabricV2._fields_, ("healthSummary", ctypes.c_uint8))


class ConfComputeSettings(ctypes.Structure):
    """nvmlSystemConfComputeSettings_v1_t, since driver 545; older bindings do not have it."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("environment", ctypes.c_uint),
        ("ccFeature", ctypes.c_uint),
        ("devToolsMode", ctypes.c_uint),
        ("multiGpuMode", ctypes.c_uint),
    )
