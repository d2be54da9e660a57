# SPDX-License-Identifier: Apache-2.0
import ipaddress
import re

import pytest

from gpuaudit.host import Output
from gpuaudit.host.answers import decode_answers
from gpuaudit.host.recording import Gap, RecordedCommand
from gpuaudit.snapshot.contents import Contents
from gpuaudit.snapshot.disguise import Disguise
from gpuaudit.snapshot.identifiers import Identifiers
from gpuaudit.snapshot.scrub import scrubbed, without_serial_number
from gpuaudit.snapshot.scrubber import Scrubber

UUID = "6f9619ff-8b86-4d11-b42d-00cf4fc964ff"
IP = "10.20.1.2"
SERIAL = "S5GXNX0T123456"
MAC = "e8:eb:d3:a1:b2:c3"
GUID = "e8eb:d303:00a1:b2c3"
PCI = "/sys/devices/pci0000:15/0000:15:01.0"

IDENTIFIERS = [
    UUID,
    UUID.upper(),
    UUID.replace("-", ""),
    f"GPU-{UUID}",
    f"MIG-{UUID}",
    "d41d8cd9:8f00b204:e9800998:ecf8427e",
    MAC,
    MAC.upper(),
    MAC.replace(":", "-"),
    f"BOOTIF=01-{MAC.replace(':', '-')}",
    "00:00:10:28:fe:80:00:00:00:00:00:00:e8:eb:d3:03:00:a1:b2:c3",
    "00:25:38:5b:11:b1:a1:c1",
    GUID,
    "fe80:0000:0000:0000:e8eb:d303:00a1:b2c3",
    "fe80::eaeb:d3ff:fea1:b2c3",
    "2001:db8:7:1::42",
    "2001:0db8:0007:0001:0000:0000:0000:0042",
    "0000:0000:0000:0000:0000:ffff:0a14:0102",
    "::ffff:10.20.1.2",
    "10.20.1.2",
    "10.20.1.2/24",
    "172.16.255.201",
    "enxe8ebd3a1b2c3",
    "ibxe8ebd30300a1b2c3",
    "eui.0025385b11b1a1c1",
    "node GUID: 0xe8ebd30300a1b2c3",
    f"nvme.144d-{SERIAL.encode().hex()}-53616d73756e67-00000001",
    "PARTUUID=1a2b3c4d-02",
    "/home/rosalind/.bashrc",
    "/home/kubernetesuser/bin",
]
NOT_IDENTIFIERS = [
    "0000:3b:00.0",
    "10000:e1:00.0",
    "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
    "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
    "570.124.06",
    "96.00.99.00.01",
    "12.570.124.06",
    "G520.0200.00.05",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06",
    "firmware-version: 1.2.3.4 (MT_0000000838)",
    "5.15.0-1053-nvidia",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.06",
    "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
    "/dev/sda8 /home/kubernetes/bin ext4 ro 0 0",
    "127.0.0.1",
    "0.0.0.0",  # noqa: S104 - a text to be left alone, nothing binds to it
    "255.255.255.0",
    "::1",
    "::",
    "0::/init.scope",
    "12:34:56",
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "fe80:0000:0000:0000:0000:0000:0000:0000",
    "ffffffff,ffffffff,00000000,00000000",
    "00000000-0000-0000-0000-000000000000",
    "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
    "31.5 GT/s PCIe",
    "GPU-????????-????-????-????-????????????",
    "std::string",
]


def plain_scrubber() -> Scrubber:
    return Scrubber(Identifiers())


def shape(text: str) -> str:
    return re.sub(r"[0-9A-Za-z]", "x", text)


@pytest.mark.parametrize("text", IDENTIFIERS)
def test_identifiers_are_replaced_in_form_and_length(text: str) -> None:
    new = plain_scrubber().text(f"key={text} rest")
    assert text not in new
    assert len(new) == len(f"key={text} rest")
    assert [c for c in new if not c.isalnum()] == [c for c in f"key={text} rest" if not c.isalnum()]


@pytest.mark.parametrize("text", NOT_IDENTIFIERS)
def test_what_identifies_nothing_is_left_alone(text: str) -> None:
    assert plain_scrubber().text(f"a {text}\nb") == f"a {text}\nb"


def test_one_value_has_one_replacement_in_every_spelling() -> None:
    scrubber = plain_scrubber()
    new = scrubber.text(UUID)
    assert scrubber.text(UUID.upper()) == new.upper()
    assert scrubber.text(UUID.replace("-", "")) == new.replace("-", "")
    assert scrubber.text(f"GPU-{UUID}") == f"GPU-{new}"
    mac = scrubber.text(MAC)
    assert scrubber.text("enxe8ebd3a1b2c3") == "enx" + mac.replace(":", "")
    guid = scrubber.text(GUID)
    assert scrubber.text(f"fe80:0000:0000:0000:{GUID}").endswith(guid)
    ipoib = scrubber.text("00:00:10:28:fe:80:00:00:00:00:00:00:e8:eb:d3:03:00:a1:b2:c3")
    assert ipoib.replace(":", "").endswith(guid.replace(":", ""))


def test_an_address_stays_in_its_network_in_every_spelling() -> None:
    scrubber = plain_scrubber()
    one, two = (scrubber.text(a).split(".") for a in ("10.20.1.2", "10.20.1.77"))
    assert one[:3] == two[:3]
    assert one[3] != two[3]
    mapped = scrubber.text("0000:0000:0000:0000:0000:ffff:0a14:0102")
    assert ipaddress.IPv6Address(mapped).ipv4_mapped == ipaddress.ip_address(".".join(one))
    long = scrubber.text("2001:0db8:0007:0001:0000:0000:0000:0042")
    assert ipaddress.ip_address(scrubber.text("2001:db8:7:1::42")) == ipaddress.ip_address(long)


def test_two_recordings_have_nothing_in_common() -> None:
    assert plain_scrubber().text(UUID) != plain_scrubber().text(UUID)


def test_many_values_never_share_a_replacement() -> None:
    disguise = Disguise()
    addresses = [f"10.1.{a}.{b}" for a in range(4) for b in range(256)]
    assert len({disguise.ip4(one) for one in addresses}) == len(addresses)
    assert len({disguise.guid(n) for n in range(0x1000, 0x1200)}) == 0x200


def test_the_device_serial_number_is_zeroed_and_nothing_else() -> None:
    config = bytearray(range(256)) * 16
    config[0x100:0x104] = (0x1480_0001).to_bytes(4, "little")
    config[0x148:0x14C] = (0x1581_0003).to_bytes(4, "little")
    config[0x158:0x15C] = (0x0001_000D).to_bytes(4, "little")
    new = without_serial_number(bytes(config))
    assert new[0x14C:0x154] == bytes(8)
    assert new[:0x14C] + new[0x154:] == config[:0x14C] + config[0x154:]


@pytest.mark.parametrize("size", [0, 64, 256, 260, 4096])
def test_odd_configuration_space_ends(size: int) -> None:
    assert (
        without_serial_number(b"\x03\x00\x01\x10" * (size // 4))[:0x100]
        == (b"\x03\x00\x01\x10" * (size // 4))[:0x100]
    )


def machine(hostname: str = "gpu-node-17.cluster.example.com") -> Contents:
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001_0003).to_bytes(4, "little")
    config[0x104:0x10C] = bytes.fromhex("c3b2a10003d3ebe8")
    answers = {
        "schema": "gpuaudit.nvml/1",
        "binding": "13.0.0",
        "init": {"v": True},
        "system": {"nvmlSystemGetDriverVersion": {"v": "12.57.124.6"}},
        "devices": [
            {
                "nvmlDeviceGetUUID": {"v": f"GPU-{UUID}"},
                "nvmlDeviceGetSerial": {"v": "1650223001234"},
                "nvmlDeviceGetVbiosVersion": {"v": "96.00.99.00.01"},
                "nvmlDeviceGetPciInfo": {"v": {"busId": "00000000:16:00.0", "device": 0}},
            }
        ],
    }
    import msgspec

    short = hostname.partition(".")[0]
    return Contents(
        entries={
            "/proc/sys/kernel/hostname": f"{hostname}\n".encode(),
            "/proc/sys/vm/swappiness": b"60\n",
            "/etc/sysctl.d/90-site.conf": b"vm.swappiness = 1\nkernel.domainname = x\n",
            "/proc/cmdline": f"root=UUID={UUID} ip={IP}::10.20.1.1:255.255.255.0:{short} "
            "-- --token=s3cr3t\n".encode(),
            "/proc/version": b"Linux version 6.8.0-site (CORP\\carol@corp@forge.lab) "
            b"(gcc 13.2.0) #1 SMP\n",
            "/etc/default/grub": b'GRUB_CMDLINE_LINUX="quiet --\tsecond=s3cr3t"\nGRUB_TIMEOUT=0\n',
            "/proc/driver/nvidia/version": b"NVRM version: NVIDIA UNIX Open Kernel Module for "
            b"x86_64  570.124.06  Release Build  (root@gpu-node-18)\n",
            "/sys/devices/virtual/dmi/id/product_serial": b"J7K8L9M\n",
            "/sys/devices/virtual/dmi/id/board_serial": b"To be filled by O.E.M.\n",
            "/sys/devices/virtual/dmi/id/chassis_asset_tag": b"OracleCloud.com\n",
            f"{PCI}/config": bytes(config),
            f"{PCI}/nvme/nvme0/serial": f"{SERIAL}      \n".encode(),
            f"{PCI}/nvme/nvme0/subsysnqn": f"nqn.2014.08.org.nvmexpress:144d144d{SERIAL}".encode(),
            f"{PCI}/nvme/nvme0/nvme0n1/eui": b"00 25 38 5b 11 b1 a1 c1\n",
            f"{PCI}/nvme/nvme0/nvme0n1/wwid": b"eui.0025385b11b1a1c1\n",
            f"{PCI}/nvme/nvme0/nvme0n2/wwid": f"nvme.144d-{SERIAL.encode().hex()}-41-01".encode(),
            f"{PCI}/net/enxe8ebd3a1b2c3/address": f"{MAC}\n".encode(),
            "/sys/class/net/enxe8ebd3a1b2c3": f"../..{PCI[4:]}/net/enxe8ebd3a1b2c3",
            "/home/rosalind/policy.yaml": b"policy: 1\n",
        },
        gaps={"/home/rosalind/.ssh": Gap("denied", "/home/rosalind/.ssh: no permission")},
        listings={"/sys/class/net": ("enxe8ebd3a1b2c3", "lo"), "/proc/sys": ("kernel", "vm")},
        commands=(
            RecordedCommand(
                argv=("lspci", "-vv"),
                output=Output(
                    returncode=0,
                    stdout="[SN] Serial number: MT2145X01234\n"
                    "Device Serial Number e8-eb-d3-03-00-a1-b2-c3",
                ),
            ),
            RecordedCommand(
                argv=("hostname",), output=Output(returncode=0, stdout=hostname + "\n")
            ),
        ),
        udev={
            "nvme": (
                {
                    "DEVPATH": "/devices/pci0000:15/0000:15:01.0/nvme/nvme0",
                    "ID_SERIAL": f"ACME_DRIVE_{SERIAL}",
                    "ID_SERIAL_SHORT": SERIAL,
                    "ID_WWN": "0x5000c500a1b2c3d4",
                    "DEVLINKS": f"/dev/disk/by-id/nvme-ACME_DRIVE_{SERIAL}_1",
                },
            ),
        },
        nvml=decode_answers(msgspec.json.encode(answers)),
    )


ORIGINALS = [
    *(UUID, MAC, MAC.replace(":", ""), SERIAL, SERIAL.encode().hex()),
    *("carol", "forge", "gpu-node-18", "s3cr3t"),
    *("gpu-node-17", "cluster.example", "J7K8L9M", "1650223001234", "MT2145X01234", "rosalind"),
    *("10.20.1.2", "10.20.1.1", "0025385b11b1a1c1", "5000c500a1b2c3d4", "e8-eb-d3-03-00-a1-b2-c3"),
    "00 25 38 5b 11 b1 a1 c1",
]


def everything(contents: Contents) -> bytes:
    return b"\n".join(
        name.encode() + b"\n" + (entry if isinstance(entry, bytes) else str(entry).encode())
        for name, entry in contents.named(repr((contents.gaps, contents.listings)).encode())
    )


def test_no_identifier_survives_anywhere() -> None:
    before, after = everything(machine()).lower(), everything(scrubbed(machine())).lower()
    for original in ORIGINALS:
        assert original.lower().encode() in before
        assert original.lower().encode() not in after
    assert bytes.fromhex("c3b2a10003d3ebe8") not in after


def test_what_says_nothing_about_the_machine_survives() -> None:
    after = everything(scrubbed(machine()))
    for kept in (
        *(PCI, "00000000:16:00.0", "96.00.99.00.01", "12.57.124.6", "vm.swappiness = 1"),
        *("/proc/sys/vm/swappiness", "To be filled by O.E.M.", "OracleCloud.com", "255.255.255.0"),
        *("Linux version 6.8.0-site (", "(gcc 13.2.0) #1 SMP\n", "Release Build  (root@"),
        *("ACME_DRIVE_", "nqn.2014.08.org.nvmexpress:144d144d", "gpuaudit.nvml/1"),
    ):
        assert kept.encode() in after


def test_one_serial_number_is_one_serial_number_everywhere() -> None:
    clean = scrubbed(machine())
    serial = clean.text(f"{PCI}/nvme/nvme0/serial")
    (drive,) = clean.udev["nvme"]
    assert serial is not None
    assert drive["ID_SERIAL_SHORT"] == serial
    assert drive["ID_SERIAL"] == f"ACME_DRIVE_{serial}"
    assert serial in drive["DEVLINKS"]
    assert (clean.text(f"{PCI}/nvme/nvme0/subsysnqn") or "").endswith(serial)
    eui = (clean.text(f"{PCI}/nvme/nvme0/nvme0n1/eui") or "").replace(" ", "")
    assert clean.text(f"{PCI}/nvme/nvme0/nvme0n1/wwid") == f"eui.{eui}"


def test_paths_links_and_listings_fit_together() -> None:
    clean = scrubbed(machine())
    (name,) = (n for n in clean.listings["/sys/class/net"] if n != "lo")
    target = clean.entries[f"/sys/class/net/{name}"]
    assert isinstance(target, str)
    assert target.endswith(f"/net/{name}")
    assert clean.text(f"{PCI}/net/{name}/address") == ":".join(re.findall("..", name[3:]))


def test_a_host_called_vm_spoils_nothing() -> None:
    clean = scrubbed(machine("vm"))
    assert clean.text("/proc/sys/vm/swappiness") == "60"
    assert clean.text("/etc/sysctl.d/90-site.conf") == "vm.swappiness = 1\nkernel.domainname = x"
    assert clean.listings["/proc/sys"] == ("kernel", "vm")
    new = clean.text("/proc/sys/kernel/hostname")
    assert new is not None
    assert (len(new), new) != (2, "vm")
    assert clean.commands[1].output is not None
    assert clean.commands[1].output.stdout == new + "\n"


@pytest.mark.parametrize(
    ("name", "everywhere"),
    [("bigbertha", True), ("dgx-a", True), ("gpu1.site.example", True), ("node1", False)],
)
def test_a_host_name_is_replaced_everywhere_unless_the_kernel_uses_the_word(
    name: str, everywhere: bool
) -> None:
    contents = machine(name)
    contents.listings["/sys/devices/system/node"] = ("node0", "node1")
    contents.entries["/etc/slurm.conf"] = f"NodeName={name} CPUs=8\n# {name} is old".encode()
    clean = scrubbed(contents)
    assert clean.listings["/sys/devices/system/node"] == ("node0", "node1")
    assert (clean.text("/proc/sys/kernel/hostname") or "") != name
    slurm = clean.text("/etc/slurm.conf") or ""
    assert slurm.startswith(f"NodeName={clean.text('/proc/sys/kernel/hostname')} CPUs=8")
    assert (name in slurm) is not everywhere


def test_the_short_host_name_fits_the_full_one() -> None:
    clean = scrubbed(machine())
    short = (clean.text("/proc/sys/kernel/hostname") or "").partition(".")[0]
    assert f":{short} -- " in (clean.text("/proc/cmdline") or "")


def test_scrubbing_twice_keeps_the_shape() -> None:
    once = scrubbed(machine())
    twice = scrubbed(once)
    assert [shape(p) for p in once.entries] == [shape(p) for p in twice.entries]
    assert len(everything(once)) == len(everything(twice)) == len(everything(machine()))
