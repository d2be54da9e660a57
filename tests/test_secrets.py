# SPDX-License-Identifier: Apache-2.0
"""A recording holds no secrets, scrubbed or not, and gives the same verdicts all the same."""

from pathlib import Path

import pytest
from trees import Tree, make_host

from gpuaudit.facts.environment import environment
from gpuaudit.facts.environmentfiles import shell
from gpuaudit.host import Host
from gpuaudit.snapshot import record
from gpuaudit.snapshot.secrets import harmless

SECRET = b"hunter2"
SCRIPT = """\
export HF_TOKEN=hunter2
# NCCL_DEBUG=hunter2
export "TOKEN=hunter2" NCCL_DEBUG=INFO AWS_SECRET_ACCESS_KEY="hunter2 x"
curl -H 'Authorization: hunter2' https://example.org
if true; then
  export NCCL_ALGO=Ring; export API=hunter2
fi
export \\
  NCCL_PROTO=Simple
set -a
UCX_TLS=rc
"""
UNIT = """\
[Service]
Environment=K3S_TOKEN=hunter2 "NCCL_DEBUG=INFO" "PROXY=http://me:hunter2@host" \\
  OTHER='hunter2 y'
ExecStart=/usr/bin/dockerd
"""
TREE: Tree = {
    "/etc/profile.d/site.sh": SCRIPT,
    "/etc/environment": "TOKEN=hunter2\nNCCL_IB_HCA=mlx5\n",
    "/etc/security/pam_env.conf": "TOKEN DEFAULT=hunter2\nNCCL_NET DEFAULT=IB\n",
    "/etc/systemd/system/docker.service": UNIT,
    "/etc/systemd/system/k3s.service": "[Service]\nEnvironmentFile=/etc/k3s.env\n",
    "/etc/containers/containers.conf": '[containers]\nenv = ["A=hunter2", "NCCL_DEBUG=INFO"]\n',
    "/etc/k3s.env": "K3S_TOKEN=hunter2\nNCCL_NET=Socket\n",
    "/etc/docker/daemon.json": '{"proxies": {"http-proxy": "http://me:hunter2@proxy"}}',
    "/etc/containerd/config.toml": '[a."b".auth]\n  password = "hunter2"\n  auth = "hunter2"\n',
    "/proc/self/environ": b"HF_TOKEN=hunter2\0NCCL_NET_PLUGIN=none\0HOME=/home/alice\0",
    "/usr/bin/dockerd": b"",
    "/usr/bin/containerd": b"",
}


@pytest.mark.parametrize("scrub", [False, True])
def test_no_secret_is_recorded(tmp_path: Path, scrub: bool) -> None:
    live = make_host(tmp_path / "live", TREE, source="live")
    record(live, str(tmp_path / "node"), scrub=scrub)
    files = [path for path in (tmp_path / "node").rglob("*") if path.is_file()]
    assert [str(path) for path in files if SECRET in path.read_bytes()] == []
    if scrub:
        assert [str(path) for path in files if b"alice" in path.read_bytes()] == []


def test_a_replay_finds_the_same_variables(tmp_path: Path) -> None:
    live = make_host(tmp_path / "live", TREE, source="live")
    before = environment(live)
    record(live, str(tmp_path / "node"))
    after = environment(Host.snapshot(str(tmp_path / "node")))
    assert after.assignments == before.assignments
    assert after.caller == before.caller
    assert len(before.assignments) >= 6


def test_lines_keep_their_numbers() -> None:
    clean = harmless("/etc/profile.d/x.sh", SCRIPT.encode(), sets_variables=True).decode()
    mine = {"NCCL_DEBUG", "NCCL_ALGO", "NCCL_PROTO", "UCX_TLS"}
    assert [one for one in shell(clean) if one[0] in mine] == [
        one for one in shell(SCRIPT) if one[0] in mine
    ]
    assert clean.count("\n") == SCRIPT.count("\n")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"),
        ("/etc/systemd/system/a.service", "[Service]\nLimitMEMLOCK=infinity\n"),
        ("/etc/containerd/config.toml", 'sandbox_image = "x"\n'),
        ("/proc/cmdline", "auth=1"),
    ],
)
def test_other_files_stay_as_they_are(path: str, text: str) -> None:
    assert harmless(path, text.encode(), sets_variables=False) == text.encode()
