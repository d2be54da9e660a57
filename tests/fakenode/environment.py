# SPDX-License-Identifier: Apache-2.0
"""Variables, the loader, container runtimes and device files of the healthy machine."""

from fakenvml import DRIVER
from trees import Link as To

from fakenode.layout import gpu_addresses
from fakenode.values import Files

CONTAINERD = """\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.10"
"""
NVIDIA_TOML = """\
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
"""
TOOLKIT = """\
disable-require = false
[nvidia-container-cli]
ldconfig = "@/sbin/ldconfig.real"
#no-cgroups = false
[nvidia-container-runtime]
mode = "auto"
runtimes = ["runc", "crun"]
"""
DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
508 nvidia-uvm

Block devices:
259 blkext
"""
MAJORS = {"nvidiactl": (195, 255), "nvidia-uvm": (508, 0), "nvidia-uvm-tools": (508, 1)}
PROFILE = 'export NCCL_IB_HCA=mlx5\nif [ -n "$DEBUG_NCCL" ]; then\n  export NCCL_DEBUG=INFO\nfi\n'


def cdi_text(driver: str = DRIVER, gpus: int = 8) -> str:
    """What `nvidia-ctk cdi generate` writes, shortened."""
    nodes = "".join(
        f"- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia{i}\n  name: '{i}'\n"
        for i in range(gpus)
    )
    library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}"
    head = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"
    return f"{head}{nodes}mounts:\n- hostPath: {library}\n"


def environment_files() -> Files:
    """Every file that the checks of environment, containers and device files read."""
    found: Files = {
        "/etc/environment": 'PATH="/usr/sbin:/usr/bin"\n',
        "/etc/profile": "# see profile.d\n",
        "/etc/profile.d/nccl.sh": PROFILE,
        "/etc/nccl.conf": "# rails of this cluster\nNCCL_IB_HCA=mlx5\n",
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/cuda.conf": "/usr/local/cuda/lib64\n/usr/local/cuda/compat\n",
        "/usr/local/cuda/compat/libcuda.so.999.10.01": b"\x7fELF",
        "/proc/self/environ": b"HOME=/root\0LD_PRELOAD=/usr/lib/libjemalloc.so.2\0",
        "/proc/devices": DEVICES,
        "/usr/bin/containerd": b"\x7fELF",
        "/etc/containerd/config.toml": CONTAINERD,
        "/etc/containerd/conf.d/99-nvidia.toml": NVIDIA_TOML,
        "/etc/nvidia-container-runtime/config.toml": TOOLKIT,
        "/sbin/ldconfig.real": b"\x7fELF",
        "/usr/bin/nvidia-modprobe": b"\x7fELF",
        "/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1.18.0": b"\x7fELF",
        "/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1": To("libnvidia-container.so.1.18.0"),
        "/etc/cdi/nvidia.yaml": cdi_text(),
    }
    return found | {path: b"" for path in device_statuses() if path.startswith("/dev/")}


def device_statuses() -> dict[str, list[object]]:
    """Kind, mode, owner and numbers as a manifest holds them."""
    gpus = {f"nvidia{index}": (195, index) for index in range(len(gpu_addresses()))}
    nodes = {
        f"/dev/{name}": ["char", 0o666, 0, 0, *numbers] for name, numbers in (gpus | MAJORS).items()
    }
    files = {"/usr/bin/nvidia-modprobe": 0o4755, "/etc/nccl.conf": 0o644}
    return nodes | {path: ["file", mode, 0, 0, 0, 0] for path, mode in files.items()}
