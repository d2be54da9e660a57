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
    "/etc/fstab": "//nas.example/x /mnt/x cifs user=alice%hunter2,password=hunter2,vers=3 0 0\n"
    "alice@files9.example:/y /mnt/y fuse.sshfs pass=hunter2 0 0\n",
    "/proc/self/mountinfo": "9 1 0:9 / / rw - ext4 /dev/sda1 rw\n"
    "10 1 0:90 / /mnt/x rw - cifs //nas.example/x rw,username=alice,password=hunter2,domain=CORP\n"
    "11 1 0:91 / /home rw - nfs4 files9.example:/h rw,addr=10.9.8.7\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz quiet rd.iscsi.password=hunter2 token=hunter2 iommu=pt "
    "netroot=iscsi:me:hunter2@h::3260::iqn.x url=http://hunter2@h/x\n",
    "/dev/kmsg": "6,1,1,-;Command line: quiet password=hunter2\n"
    "3,2,9,-;NVRM: Xid (PCI:0000:1a:00): 31, GPU serial 1654922001234 of files9.example\n",
    "/etc/slurm/slurm.conf": "StoragePass=hunter2\nPropagateResourceLimits=NONE\n",
    "/etc/profile.d/y.sh": "export NCCL_NET=$(curl -u me:hunter2 x)\n"
    "export NCCL_ALGO=Ring # hunter2\n",
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
    named = (b"alice", b"nas.example", b"files9", b"CORP", b"10.9.8.7", b"1654922001234")
    found = {name for name in named for path in files if name in path.read_bytes()}
    assert found == set() if scrub else len(found) > 4


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
        ("/proc/cmdline", "auth=1 iommu.passthrough=1 kvm.bypass=1 nokaslr"),
        ("/proc/self/mountinfo", "9 1 0:9 / /mnt/pass rw - nfs4 h:/token rw,sec=sys,user_id=0"),
        ("/etc/security/limits.conf", "* hard memlock unlimited # ask token@example.org\n"),
        ("/etc/sysctl.d/a.conf", "net.sctp.auth_enable = 1\n"),
    ],
)
def test_other_files_stay_as_they_are(path: str, text: str) -> None:
    assert harmless(path, text.encode(), sets_variables=False) == text.encode()
