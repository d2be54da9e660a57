# SPDX-License-Identifier: Apache-2.0
"""Single faults of variables, the loader, containers, device files and MPS."""

from fakenode import FakeNode, Link
from fakenode.breaking import remove, text, write
from fakenode.environment import TOOLKIT, cdi_text
from fakenode.fault import Fault

ENVIRONMENT = "/etc/environment"
CDI = "/etc/cdi/nvidia.yaml"
MPS = "nvidia-cuda-mps"


def launch_blocking_left_for_everyone(node: FakeNode) -> None:
    write(node, ENVIRONMENT, "CUDA_LAUNCH_BLOCKING=1")


def p2p_disabled_in_a_profile_script(node: FakeNode) -> None:
    node.files["/etc/profile.d/debug.sh"] = "export NCCL_P2P_DISABLE=1\n"


def profiler_injected_for_everyone(node: FakeNode) -> None:
    write(node, ENVIRONMENT, "CUDA_INJECTION64_PATH=/opt/profiler/libinject.so")


def library_preloaded(node: FakeNode) -> None:
    node.files["/etc/ld.so.preload"] = "/usr/lib/libwatch.so\n"


def gpus_hidden_by_profile(node: FakeNode) -> None:
    node.files["/etc/profile.d/gpus.sh"] = "export CUDA_VISIBLE_DEVICES=0,1\n"


def stub_library_in_the_cache(node: FakeNode) -> None:
    write(node, "/etc/ld.so.conf.d/cuda.conf", "/usr/local/cuda/lib64/stubs")


def compat_library_older_than_the_driver(node: FakeNode) -> None:
    remove(node, "/usr/local/cuda/compat/libcuda.so.999.10.01")
    node.files["/usr/local/cuda/compat/libcuda.so.450.80.02"] = b"\x7fELF"


def nccl_settings_contradict(node: FakeNode) -> None:
    write(node, ENVIRONMENT, "NCCL_IB_HCA=mlx5_0")


def nccl_conf_with_quotes(node: FakeNode) -> None:
    write(node, "/etc/nccl.conf", 'NCCL_SOCKET_IFNAME = "eth0"')


def no_way_for_containers_to_the_gpus(node: FakeNode) -> None:
    remove(node, "/etc/containerd/conf.d/99-nvidia.toml")


def cdi_file_of_an_older_driver(node: FakeNode) -> None:
    write(node, CDI, cdi_text("550.54.15"))


def cdi_file_with_seven_gpus(node: FakeNode) -> None:
    write(node, CDI, cdi_text(gpus=7))


def toolkit_without_ldconfig(node: FakeNode) -> None:
    changed = TOOLKIT.replace("ldconfig.real", "ldconfig.gone")
    write(node, "/etc/nvidia-container-runtime/config.toml", changed)


def toolkit_with_a_hole(node: FakeNode) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1"
    node.files[f"{library}.17.7"] = b"\x7fELF"
    node.files[library] = Link("libnvidia-container.so.1.17.7")


def gpu_device_file_closed(node: FakeNode) -> None:
    node.statuses["/dev/nvidia3"][1] = 0o600


def device_file_of_an_earlier_driver(node: FakeNode) -> None:
    node.statuses["/dev/nvidia-uvm"][4] = 507


def no_uvm_device_file(node: FakeNode) -> None:
    remove(node, "/dev/nvidia-uvm", "/usr/bin/nvidia-modprobe")


def mps_daemon_of_root_with_default_mode(node: FakeNode) -> None:
    node.processes.append({"pid": 4001, "name": MPS, "state": "sleeping", "parent": 1})
    node.files["/proc/4001/status"] = text(node, "/proc/self/status")


def mps_process_died(node: FakeNode) -> None:
    node.processes.append({"pid": 4002, "name": MPS, "state": "zombie", "parent": 1})


FAULTS = (
    Fault(launch_blocking_left_for_everyone, {"environment-debug": "fail"}),
    Fault(p2p_disabled_in_a_profile_script, {"environment-debug": "warn"}),
    Fault(profiler_injected_for_everyone, {"environment-injection": "warn"}),
    Fault(library_preloaded, {"environment-injection": "warn"}),
    Fault(gpus_hidden_by_profile, {"environment-visible-devices": "warn"}),
    Fault(
        stub_library_in_the_cache,
        {"environment-library-path": "fail", "environment-forward-compat": "notapplicable"},
    ),
    Fault(compat_library_older_than_the_driver, {"environment-forward-compat": "fail"}),
    Fault(nccl_settings_contradict, {"environment-nccl-node-wide": "warn"}),
    Fault(nccl_conf_with_quotes, {"environment-nccl-conf": "fail"}),
    Fault(no_way_for_containers_to_the_gpus, {"container-runtime-nvidia": "warn"}),
    Fault(cdi_file_of_an_older_driver, {"container-cdi-spec": "fail"}),
    Fault(cdi_file_with_seven_gpus, {"container-cdi-spec": "warn"}),
    Fault(toolkit_without_ldconfig, {"container-toolkit-config": "fail"}),
    Fault(toolkit_with_a_hole, {"container-toolkit-version": "warn"}),
    Fault(gpu_device_file_closed, {"driver-device-nodes": "fail"}),
    Fault(device_file_of_an_earlier_driver, {"driver-device-nodes": "fail"}),
    Fault(no_uvm_device_file, {"driver-device-nodes": "fail"}),
    Fault(mps_daemon_of_root_with_default_mode, {"mps-compute-mode": "warn"}),
    Fault(mps_process_died, {"mps-daemon": "warn"}),
)
