# SPDX-License-Identifier: Apache-2.0
"""Block devices, software RAID, and the room on file systems."""

import json
from typing import Any

from fakenode.commands import command
from fakenode.layout import drive_addresses
from fakenode.pci import link, path_of
from fakenode.values import Files

MDSTAT = """\
Personalities : [raid1]
md0 : active raid1 nvme3n1p2[1] nvme2n1p2[0]
      937560064 blocks super 1.2 [2/2] [UU]
      bitmap: 2/7 pages [8KB], 65536KB chunk

unused devices: <none>
"""


def storage_files() -> Files:
    """A namespace on each NVMe controller, and the array that holds /."""
    found: Files = {"/proc/mdstat": MDSTAT}
    for place, address in enumerate(drive_addresses()):
        here = f"{path_of(address)}/nvme/nvme{place}/nvme{place}n1"
        found |= {
            f"{here}/queue/scheduler": "[none] mq-deadline kyber bfq\n",
            f"{here}/queue/read_ahead_kb": "128\n",
            **link(f"/sys/block/nvme{place}n1", here),
        }
    return found


def storage_commands() -> list[dict[str, Any]]:
    """Room on / and /scratch."""
    return [room("/"), room("/scratch")]


def room(folder: str, free_percent: int = 60) -> dict[str, Any]:
    """What statvfs answers for a file system of 1 TiB."""
    total, inodes = 1 << 30, 1 << 26
    answer = {
        "total_kib": total,
        "free_kib": total * free_percent // 100,
        "inodes": inodes,
        "free_inodes": inodes // 2,
    }
    return command("@statvfs", folder, stdout=json.dumps(answer))
