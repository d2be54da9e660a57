# SPDX-License-Identifier: Apache-2.0
"""Where variables are set, by files."""

from pathlib import Path

import pytest
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import Environment, environment
from gpuaudit.facts.environmentfiles import nccl, pam, plain, shell
from gpuaudit.host.environ import kept, matters

KTHREADD = [
    {"pid": p, "name": n, "state": "sleeping"} for p, n in ((1, "systemd"), (2, "kthreadd"))
]
SLURMD = """\
[Service]
Environment=NCCL_DEBUG=WARN "NCCL_IB_HCA=mlx5_0,mlx5_1"
EnvironmentFile=-/etc/default/%N
"""


def probed(folder: Path, tree: Tree, **how: object) -> Environment:
    host = make_host(folder, tree, **{"processes": KTHREADD, **how})  # type: ignore[arg-type]  # its keywords
    return environment(host)


def told(found: Environment) -> list[tuple[str, str, str, str, bool]]:
    return [tuple(one) for one in found.assignments]  # type: ignore[misc]  # five fields


def test_every_place_is_read(tmp_path: Path) -> None:
    tree: Tree = {
        "/etc/environment": '# all\nexport NCCL_DEBUG="INFO"\nTOKEN=abc\n',
        "/etc/security/pam_env.conf": "LD_PRELOAD DEFAULT=/a.so\n",
        "/etc/profile": "export CUDA_CACHE_DISABLE=1\n",
        "/etc/profile.d/z.csh": "setenv UCX_TLS rc\n",
        "/etc/profile.d/README": "export NCCL_ALGO=Ring\n",
        "/etc/containers/containers.conf": '[containers]\nenv = ["A=1", "NCCL_DEBUG=WARN"]\n',
        "/etc/environment.d/5.conf": "OMP_NUM_THREADS=4\n",
        "/etc/nccl.conf": "NCCL_PROTO=Simple\n",
        "/etc/systemd/system.conf": "[Manager]\nDefaultEnvironment=MKL_NUM_THREADS=1\n",
        "/etc/systemd/system/slurmd.service": SLURMD,
        "/etc/default/slurmd": "NCCL_IB_GID_INDEX=3\n",
        "/proc/self/environ": b"HOME=/root\0NCCL_NET=IB\0HF_TOKEN=hf_x\0",
    }
    found = probed(tmp_path, tree)
    assert [(n, v, w.rpartition("/")[2], r) for n, v, w, r, _ in told(found)] == [
        ("NCCL_DEBUG", "INFO", "environment:2", "logins"),
        ("LD_PRELOAD", "/a.so", "pam_env.conf:1", "logins"),
        ("CUDA_CACHE_DISABLE", "1", "profile:1", "login shells"),
        ("NCCL_DEBUG", "WARN", "containers.conf:2", "containers of Podman"),
        ("UCX_TLS", "rc", "z.csh:1", "login shells"),
        ("OMP_NUM_THREADS", "4", "5.conf:1", "user services"),
        ("NCCL_PROTO", "Simple", "nccl.conf:1", "every program with NCCL"),
        ("MKL_NUM_THREADS", "1", "system.conf:2", "every service"),
        ("NCCL_DEBUG", "WARN", "slurmd.service:2", "slurmd.service"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1", "slurmd.service:2", "slurmd.service"),
        ("NCCL_IB_GID_INDEX", "3", "slurmd:1", "slurmd.service"),
    ]
    assert found.gaps == {}
    assert found.value("NCCL_NET") == "IB"
    assert found.job is None
    assert [one.where for one in found.named("NCCL_NET")] == ["/proc/self/environ"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export NCCL_DEBUG=INFO # why", [("NCCL_DEBUG", "INFO", 1, False)]),
        ("NCCL_DEBUG=INFO\n", []),
        ("NCCL_DEBUG=INFO\nexport NCCL_DEBUG\n", [("NCCL_DEBUG", "INFO", 1, False)]),
        ("NCCL_DEBUG=INFO python train.py", []),
        ("export A=1 NCCL_ALGO='Ring'", [("A", "1", 1, False), ("NCCL_ALGO", "Ring", 1, False)]),
        ("if x; then\n  export NCCL_ALGO=Ring\nfi", [("NCCL_ALGO", "Ring", 2, True)]),
        ("[ -d /x ] && export NCCL_ALGO=Ring", [("NCCL_ALGO", "Ring", 1, True)]),
        ("alias t='NCCL_DEBUG=INFO python'", []),
        ('echo "set NCCL_DEBUG=INFO"', []),
        ("# export NCCL_DEBUG=INFO", []),
        ("set -a\nNCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", 2, False)]),
        ("export \\\nNCCL_DEBUG=INFO\n", [("NCCL_DEBUG", "INFO", 1, False)]),
        ("declare -x NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", 1, False)]),
        ("export LD_LIBRARY_PATH=/a:$B", [("LD_LIBRARY_PATH", "/a:$B", 1, False)]),
        ("export LD_PRELOAD=", [("LD_PRELOAD", "", 1, False)]),
        ("setenv NCCL_DEBUG INFO", [("NCCL_DEBUG", "INFO", 1, False)]),
    ],
)
def test_scripts(text: str, expected: list[tuple[str, str, int, bool]]) -> None:
    assert list(shell(text)) == expected


def test_other_syntaxes() -> None:
    assert list(plain("A = 'x y'\n;B=1\nno")) == [("A", "x y", 1, False)]
    assert list(pam("A DEFAULT=1 OVERRIDE=2\n#B DEFAULT=1\nC\n")) == [("A", "2", 1, False)]
    assert list(nccl('A="x" \n#B=1\n')) == [("A", '"x" ', 1, False)]


def test_systemd_takes_back_what_an_empty_line_ends(tmp_path: Path) -> None:
    unit = "[Service]\nEnvironment=NCCL_DEBUG=INFO\nEnvironment=\nEnvironmentFile=/etc/a*\n"
    found = probed(tmp_path, {"/etc/systemd/system/docker.service": unit})
    assert found.assignments == ()
    assert "names no single file" in found.gaps["/etc/systemd/system/docker.service:4"].reason


def test_what_was_not_recorded_is_a_gap(tmp_path: Path) -> None:
    found = probed(tmp_path, {"/proc/cpuinfo": ""}, source="plain")
    assert found.gaps["/etc/environment"].kind == "failed"
    assert isinstance(found.caller, Absent)
    assert found.value("NCCL_DEBUG") is None


def test_an_image_has_no_caller(tmp_path: Path) -> None:
    found = probed(tmp_path, {"/etc/environment": "NCCL_DEBUG=INFO"}, source="image")
    assert isinstance(found.caller, Absent)
    assert found.caller.kind == "unsupported"
    assert [one.name for one in found.assignments] == ["NCCL_DEBUG"]
    assert found.gaps == {}


def test_units_of_a_container_are_not_asked(tmp_path: Path) -> None:
    tree = {"/.dockerenv": "", "/etc/systemd/system/slurmd.service": SLURMD}
    found = probed(tmp_path, tree, processes=[{"pid": 1, "name": "sh", "state": "sleeping"}])
    assert found.assignments == ()


def test_secrets_never_matter() -> None:
    names = ("NVIDIA_API_KEY", "NVIDIA_NGC_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PATH")
    assert [name for name in names if matters(name)] == []
    data = b"HF_TOKEN=a\0NCCL_DEBUG=INFO\0NVIDIA_API_KEY=b\0broken\0"
    assert kept(data) == b"NCCL_DEBUG=INFO\0"


def test_a_live_node_keeps_only_what_matters(tmp_path: Path) -> None:
    data = b"HF_TOKEN=secret\0NCCL_DEBUG=INFO\0"
    host = make_host(tmp_path, {"/proc/self/environ": data}, source="live")
    assert environment(host).caller == {"NCCL_DEBUG": "INFO"}
    assert b"secret" not in b"".join(
        d for d in host.evidence.files.values() if isinstance(d, bytes)
    )
