# SPDX-License-Identifier: Apache-2.0
"""What PCI functions say beyond link and place: control words, error counts, windows, sleep."""

import struct

from fakenode.layout import GPU
from fakenode.pci import Placed, everything, header, link
from fakenode.registers import EXPRESS_CAP, config_space
from fakenode.values import Files

DEVCAP, DEVCTL = EXPRESS_CAP + 4, EXPRESS_CAP + 8
LNKCAP, LNKCTL = EXPRESS_CAP + 0x0C, EXPRESS_CAP + 0x10
DEVCAP2, DEVCTL2 = EXPRESS_CAP + 0x24, EXPRESS_CAP + 0x28
CONTROL = 0x593F
"""Reads of 4096 bytes, extended tags, payloads of 256, relaxed ordering, reports every error."""

CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr")
UNCORRECTABLE = (
    *("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF"),
    *("MalfTLP", "ECRC", "UnsupReq", "ACSViol", "UncorrIntErr"),
)
AER = "/sys/bus/pci_express/drivers/aer"
ASPM_POLICY = "/sys/module/pcie_aspm/parameters/policy"
NO_BAR = (0, 0, 0)
BARS = (
    (0x21A042000000, 0x21A042FFFFFF, 0x140204),
    NO_BAR,
    (0x21A000000000, 0x21BFFFFFFFFF, 0x14220C),
    NO_BAR,
    (0x21A040000000, 0x21A041FFFFFF, 0x14220C),
    NO_BAR,
)
"""Registers, the memory, and a small one, as an H100 SXM has them."""


def pciextra_files() -> Files:
    """For every function of the machine."""
    found: Files = {ASPM_POLICY: "[default] performance powersave powersupersave \n"}
    for one in everything():
        found[f"{one.path}/config"] = registers(one)
        found |= {f"{one.path}/{name}": text for name, text in error_counts().items()}
        if one.slot.model.port == "root":
            found |= aer_service(one)
        if one.slot.model == GPU:
            found[f"{one.path}/resource"] = windows(*BARS)
    return found


def registers(one: Placed) -> bytes:
    """Ten-bit tags on, ASPM offered and off."""
    space = bytearray(config_space(header(one.slot)))
    struct.pack_into("<H", space, DEVCTL, CONTROL)
    struct.pack_into("<IH", space, DEVCAP2, 0x00030000, 0x1000)
    (most,) = struct.unpack_from("<I", space, LNKCAP)
    struct.pack_into("<I", space, LNKCAP, most | 3 << 10 | 4 << 15)
    return bytes(space)


def error_counts(**counts: int) -> dict[str, str]:
    """The three files; `counts` are by kind."""
    return {
        "aer_dev_correctable": counted(CORRECTABLE, "TOTAL_ERR_COR", counts),
        "aer_dev_fatal": counted(UNCORRECTABLE, "TOTAL_ERR_FATAL", counts),
        "aer_dev_nonfatal": counted(UNCORRECTABLE, "TOTAL_ERR_NONFATAL", counts),
    }


def counted(kinds: tuple[str, ...], total: str, counts: dict[str, int]) -> str:
    """A line a kind, and their sum."""
    mine = [counts.get(kind, 0) for kind in kinds]
    lines = [*(f"{k} {n}" for k, n in zip(kinds, mine, strict=True)), f"{total} {sum(mine)}"]
    return "\n".join(lines) + "\n"


def aer_service(port: Placed) -> Files:
    """The kernel handles the errors of this root port."""
    name = f"{port.slot.address}:pcie002"
    found: Files = {f"{port.path}/{name}/uevent": "DRIVER=aer\n"}
    return found | link(f"{AER}/{name}", f"{port.path}/{name}")


def windows(*bars: tuple[int, int, int]) -> str:
    """The file `resource`: BARs, the ROM, and room for virtual functions."""
    rest = [NO_BAR] * (13 - len(bars))
    return "".join(f"0x{a:016x} 0x{b:016x} 0x{f:016x}\n" for a, b, f in (*bars, *rest))
