# SPDX-License-Identifier: Apache-2.0
"""Single faults that count only where the policy asks for the property, or knows the product."""

from fakenode import FakeNode
from fakenode.breaking import answer, everywhere, remove, start, text, write
from fakenode.cpus import CORES, CPU, CPUS, NODES
from fakenode.fault import Fault
from fakenode.faults_driver import proprietary_modules
from fakenode.faults_host import irqbalance_stopped, one_cpu_offline
from fakenode.faults_network import answers, becomes
from fakenode.faults_rdma import rail_turned_into_ethernet
from fakenode.layout import gpu_addresses

NODES_OF_A_RACK = "10.0.0.1\n10.0.0.2\n"
FLAW = f"{CPU}/vulnerabilities/spectre_v2"


def docker_with_its_own_small_shm(node: FakeNode) -> None:
    node.files["/usr/bin/dockerd"] = b"\x7fELF"
    node.files["/etc/docker/daemon.json"] = '{"default-shm-size": "64m"}'


def smt_switched_off(node: FakeNode) -> None:
    """The second threads go offline, as a write to smt/control does it."""
    first = CORES * len(NODES)
    write(node, f"{CPU}/smt/control", "off")
    write(node, f"{CPU}/smt/active", "0")
    write(node, f"{CPU}/online", f"0-{first - 1}")
    write(node, f"{CPU}/offline", f"{first}-{CPUS - 1}")
    for cpu in range(first, CPUS):
        write(node, f"{CPU}/cpu{cpu}/online", "0")
        remove(node, f"{CPU}/cpufreq/policy{cpu}", f"{CPU}/cpu{cpu}/topology")
    for number in NODES:
        local = f"{number * CORES}-{number * CORES + CORES - 1}"
        old = text(node, f"/sys/devices/system/node/node{number}/cpulist")
        write(node, f"/sys/devices/system/node/node{number}/cpulist", local)
        for path, content in node.files.items():
            if path.endswith("/local_cpulist") and content == old:
                node.files[path] = f"{local}\n"


def imex_without_channels(node: FakeNode) -> None:
    start(node, 7777, "nvidia-imex", "")
    node.files["/etc/nvidia-imex/nodes_config.cfg"] = NODES_OF_A_RACK


def accounting_left_on(node: FakeNode) -> None:
    everywhere(node, "AccountingMode", 1)


def confidential_computing_on(node: FakeNode) -> None:
    settings = {"environment": 2, "ccFeature": 1, "devToolsMode": 0, "multiGpuMode": 0}
    node.nvml["system"]["nvmlSystemGetConfComputeSettings"] = {"v": settings}


def memory_cleared_at_the_next_boot_too(node: FakeNode) -> None:
    for path in ("/proc/cmdline", "/boot/grub/grub.cfg", "/etc/default/grub"):
        line = text(node, path)
        node.files[path] = line.replace("hugepage=madvise", "hugepage=madvise init_on_alloc=1")


def flaw_left_open(node: FakeNode) -> None:
    write(node, FLAW, "Vulnerable")


def one_gpu_sliced(node: FakeNode) -> None:
    answer(node, 5, "MigMode", [1, 1])


def rail_sorts_by_the_tag(node: FakeNode) -> None:
    answers(node, bridging={"pfc": [3], "dscp": 0})


def gdrdrv_not_loaded(node: FakeNode) -> None:
    remove(node, "/sys/module/gdrdrv", "/dev/gdrdrv")


def a_product_of_tomorrow(node: FakeNode) -> None:
    for address in gpu_addresses():
        becomes(node, address, 0x10DE, 0x3999, "nvidia")


def ask(section: str, **values: str) -> str:
    """A site policy with one section."""
    rows = "".join(f"    {name}: {value}\n" for name, value in values.items())
    return f"policy: 1\nexpect:\n  {section}:\n{rows}"


FAULTS: tuple[Fault, ...] = (
    Fault(
        docker_with_its_own_small_shm,
        {"container-default-shm": "warn"},
        ask("container", docker_shm_min_mib="1024"),
    ),
    Fault(smt_switched_off, {"cpu-smt": "fail"}, ask("cpu", smt="enabled")),
    Fault(proprietary_modules, {"driver-open-modules": "fail"}, ask("driver", modules="open")),
    Fault(
        imex_without_channels,
        {"fabric-imex": "pass", "fabric-imex-channels": "warn"},
        ask("fabric_imex", multi_node="true"),
    ),
    Fault(
        accounting_left_on, {"gpu-accounting-mode": "warn"}, ask("gpu_settings", accounting="false")
    ),
    Fault(
        confidential_computing_on,
        {"gpu-confidential-computing": "fail"},
        ask("gpu_settings", confidential_computing='"off"'),
    ),
    Fault(
        memory_cleared_at_the_next_boot_too,
        {"kernel-init-on-alloc": "warn"},
        ask("kernel_version", init_on_alloc='"off"'),
    ),
    Fault(
        flaw_left_open,
        {"kernel-mitigations": "warn"},
        ask("kernel_version", mitigations="complete"),
    ),
    Fault(
        one_gpu_sliced,
        {"mig-mode-alike": "warn", "mig-mode-expected": "fail"},
        ask("mig", mode="disabled"),
    ),
    Fault(
        rail_turned_into_ethernet,
        {
            "rdma-gid-roce-v2": "unknown",
            "rdma-link-layer": "fail",
            "rdma-mtu": "pass",
            "rdma-ports-alike": "warn",
        },
        ask("rdma_selection", link_layer="InfiniBand"),
    ),
    Fault(
        one_cpu_offline,
        {
            "cpu-all-online": "fail",
            "cpu-siblings-alike": "warn",
            "numa-local-cpus-online": "fail",
        },
        ask("numa", min_local_cpus_per_gpu="24"),
    ),
    Fault(
        rail_sorts_by_the_tag,
        {"network-roce-trust": "warn"},
        ask("network_trust", roce_sorted_by="dscp"),
    ),
    Fault(gdrdrv_not_loaded, {"rdma-gdrcopy": "fail"}, ask("rdma_modules", gdrcopy="required")),
    Fault(irqbalance_stopped, {"irq-balance-policy": "fail"}, ask("irq", irqbalance="running")),
    Fault(
        a_product_of_tomorrow,
        {
            "ecc-mode-enabled": "notapplicable",
            "gpu-bar1-size": "notapplicable",
            "gpu-product-known": "warn",
        },
    ),
)
