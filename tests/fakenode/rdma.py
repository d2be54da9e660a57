# SPDX-License-Identifier: Apache-2.0
"""What RDMA has beside its ports: counters, device files, GIDs of Ethernet ports, modules."""

from fakenode.layout import STORAGE_ADDRESSES, hca_addresses
from fakenode.pci import link, path_of
from fakenode.values import Files

ADAPTERS = {
    address: f"mlx5_{n}" for n, address in enumerate((*hca_addresses(), *STORAGE_ADDRESSES))
}
TRANSPORT = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err")
MODULES = ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib")
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def rdma_files() -> Files:
    """Added to, and partly instead of, what class_files() says."""
    found: Files = {f"/sys/module/{module}/taint": "OE\n" for module in MODULES}
    found |= {"/sys/module/gdrdrv/taint": "OE\n", "/dev/gdrdrv": ""}
    for number, (address, name) in enumerate(ADAPTERS.items()):
        parent = path_of(address)
        port = f"{parent}/infiniband/{name}/ports/1"
        found |= {f"{port}/hw_counters/{counter}": "0\n" for counter in TRANSPORT}
        found |= verbs(parent, name, number)
        if address in STORAGE_ADDRESSES:
            found |= ethernet(f"{parent}/infiniband/{name}", number)
    return found


def verbs(parent: str, name: str, number: int) -> Files:
    """The way in for programs."""
    here = f"{parent}/infiniband_verbs/uverbs{number}"
    found: Files = {f"{here}/ibdev": f"{name}\n", f"/dev/infiniband/uverbs{number}": ""}
    return found | link(f"/sys/class/infiniband_verbs/uverbs{number}", here)


def ethernet(device: str, number: int) -> Files:
    """An older adapter with Ethernet ports, each with one IPv4 address."""
    port = f"{device}/ports/1"
    gids = [f"fe80:0000:0000:0000:0000:00ff:fe00:00{number:02x}"] * 2
    gids += [f"0000:0000:0000:0000:0000:ffff:0a00:00{number:02x}"] * 2 + [NO_GID] * 2
    found: Files = {f"{port}/gids/{place}": f"{gid}\n" for place, gid in enumerate(gids)}
    for place in range(4):
        found[f"{port}/gid_attrs/types/{place}"] = "RoCE v2\n" if place % 2 else "IB/RoCE v1\n"
        found[f"{port}/gid_attrs/ndevs/{place}"] = f"ens3f{number - 8}np{number - 8}\n"
    make = {"hca_type": "MT4125", "board_id": "EXA0000000002", "fw_ver": "22.43.2026"}
    return found | {f"{device}/{name}": f"{text}\n" for name, text in make.items()}
