# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.grub import release_of
from gpuaudit.facts.nextboot import BootEntry, boot_entry, effective_line, next_kernel
from gpuaudit.host import NotApplicable, Unavailable

HEAD = """\
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="%s"
fi
function savedefault {
  saved_entry="${chosen}"
}
"""
DEBIAN = """\
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'simple-1' {
\tif [ x$grub_platform = xxen ]; then insmod xzio; fi
\techo\t'Loading Linux 6.1.0-13-amd64 ...'
\tlinux\t/vmlinuz-6.1.0-13-amd64 root=UUID=1 ro  quiet iommu=pt $vt_handoff
\tinitrd\t/initrd.img-6.1.0-13-amd64
}
submenu 'Advanced options' $menuentry_id_option 'advanced-1' {
\tmenuentry 'Debian, with Linux 6.1.0-13-amd64' $menuentry_id_option 'new-1' {
\t\tlinux\t/vmlinuz-6.1.0-13-amd64 root=UUID=1 ro quiet iommu=pt
\t}
\tmenuentry 'Debian, with Linux 6.1.0-9-amd64' $menuentry_id_option 'old-1' {
\t\tlinux\t/vmlinuz-6.1.0-9-amd64 root=UUID=1 ro quiet
\t}
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
\tfwsetup
}
"""
RED_HAT = HEAD % "${saved_entry}" + "insmod blscfg\nblscfg\n"
ID = "0123456789abcdef0123456789abcdef"
ENTRIES = {
    f"/boot/loader/entries/{ID}-0-rescue.conf": "linux /vmlinuz-0-rescue\noptions root=/dev/a ro\n",
    f"/boot/loader/entries/{ID}-5.14.0-70.el9.x86_64.conf": (
        "title Rocky Linux (5.14.0-70)\nversion 5.14.0-70.el9.x86_64\n"
        "linux /vmlinuz-5.14.0-70.el9.x86_64\noptions root=/dev/a ro iommu=pt $tuned_params\n"
    ),
    f"/boot/loader/entries/{ID}-5.14.0-427.el9.x86_64.conf": (
        "title Rocky Linux (5.14.0-427)\nversion 5.14.0-427.el9.x86_64\n"
        "linux /vmlinuz-5.14.0-427.el9.x86_64\noptions root=/dev/a ro nosmt\n"
    ),
}
OLD_ENTRY = f"saved_entry={ID}-5.14.0-70.el9.x86_64\n"


def entry(folder: Path, tree: Tree, **more: Any) -> BootEntry:
    return boot_entry(make_host(folder, tree, **more))


@pytest.mark.parametrize(
    ("default", "environment", "kernel"),
    [
        ("0", "", "6.1.0-13-amd64"),
        ("simple-1", "", "6.1.0-13-amd64"),
        ("advanced-1>old-1", "", "6.1.0-9-amd64"),
        ("1>1", "", "6.1.0-9-amd64"),
        ("Advanced options>Debian, with Linux 6.1.0-9-amd64", "", "6.1.0-9-amd64"),
        ("1", "", "6.1.0-13-amd64"),
        ("gone", "", "6.1.0-13-amd64"),
        ("99", "", "6.1.0-13-amd64"),
        ("${saved_entry}", "saved_entry=1>1\n", "6.1.0-9-amd64"),
        ("${saved_entry}", "", "6.1.0-13-amd64"),
        ("0", "next_entry=advanced-1>old-1\n", "6.1.0-9-amd64"),
    ],
)
def test_the_default_of_a_menu(tmp_path: Path, default: str, environment: str, kernel: str) -> None:
    tree = {"/boot/grub/grub.cfg": HEAD % default + DEBIAN, "/boot/grub/grubenv": environment}
    found = entry(tmp_path, tree)
    assert (found.kernel, found.file) == (kernel, "/boot/grub/grub.cfg")
    assert ("iommu=pt" in found.words) is (kernel == "6.1.0-13-amd64")
    assert not any("vt_handoff" in word for word in found.words)


@pytest.mark.parametrize(
    ("environment", "kernel", "words"),
    [
        ("", "5.14.0-427.el9.x86_64", ("root=/dev/a", "ro", "nosmt")),
        (OLD_ENTRY, "5.14.0-70.el9.x86_64", ("root=/dev/a", "ro", "iommu=pt")),
        (
            f"{OLD_ENTRY}tuned_params=isolcpus=2-3 nohz_full=2-3\n",
            "5.14.0-70.el9.x86_64",
            ("root=/dev/a", "ro", "iommu=pt", "isolcpus=2-3", "nohz_full=2-3"),
        ),
    ],
)
def test_entries_that_grub_lists(
    tmp_path: Path, environment: str, kernel: str, words: tuple[str, ...]
) -> None:
    tree = {"/boot/grub2/grub.cfg": RED_HAT, "/boot/grub2/grubenv": environment, **ENTRIES}
    found = entry(tmp_path, tree)
    assert (found.kernel, found.words) == (kernel, words)
    assert found.file == f"/boot/loader/entries/{ID}-{kernel}.conf"


def test_kernelopts_stand_in_the_environment_block(tmp_path: Path) -> None:
    name = f"/boot/loader/entries/{ID}-4.18.0-513.el8.x86_64.conf"
    tree = {
        "/boot/efi/EFI/rocky/grub.cfg": RED_HAT,
        "/boot/efi/EFI/rocky/grubenv": "kernelopts=root=/dev/a ro intel_iommu=on\n",
        "/boot/grub2/grub.cfg": HEAD % "0" + DEBIAN,
        name: "id rhel-1-4.18\nlinux /vmlinuz-4.18.0-513.el8.x86_64\noptions $kernelopts\n",
    }
    found = entry(tmp_path, tree)
    assert found.words == ("root=/dev/a", "ro", "intel_iommu=on")
    assert found.file == name


def test_a_stub_leads_elsewhere(tmp_path: Path) -> None:
    stub = "search.fs_uuid 1 root\nset prefix=($root)'/grub'\nconfigfile $prefix/grub.cfg\n"
    tree = {"/boot/efi/EFI/debian/grub.cfg": stub, "/boot/grub/grub.cfg": HEAD % "0" + DEBIAN}
    assert entry(tmp_path, tree).file == "/boot/grub/grub.cfg"


def test_several_menus_are_not_chosen_from(tmp_path: Path) -> None:
    menu = HEAD % "0" + DEBIAN
    both = {"/boot/grub/grub.cfg": menu, "/boot/grub2/grub.cfg": menu}
    with pytest.raises(Unavailable, match="which of these"):
        entry(tmp_path / "a", both)
    vendors = {"/boot/efi/EFI/a/grub.cfg": menu, "/boot/efi/EFI/b/grub.cfg": menu}
    with pytest.raises(Unavailable, match="which of these"):
        entry(tmp_path / "b", vendors)
    linked: Tree = {"/boot/grub/grub.cfg": menu, "/boot/grub2": Link("grub")}
    assert entry(tmp_path / "c", linked).kernel == "6.1.0-13-amd64"


@pytest.mark.parametrize(
    ("line", "by_grub"),
    [
        ("BOOT_IMAGE=/boot/vmlinuz-6.1 ro", True),
        ("BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.1 ro", True),
        ("console=ttyS0 reboot=k", False),
        ("initrd=magic console=ttyS0 BOOT_IMAGE=images/node/vmlinuz", False),
        ("BOOT_IMAGE=(tftp,10.0.0.1)/vmlinuz ro", False),
        ("BOOT_IMAGE=/images/vmlinuz initrd=/images/initrd ro", False),
    ],
)
def test_a_menu_that_did_not_start_this_kernel(tmp_path: Path, line: str, by_grub: bool) -> None:
    tree = {"/boot/grub/grub.cfg": HEAD % "0" + DEBIAN, "/proc/cmdline": f"{line}\n"}
    if by_grub:
        assert entry(tmp_path, tree).kernel == "6.1.0-13-amd64"
    else:
        with pytest.raises(NotApplicable, match="did not start"):
            entry(tmp_path, tree)


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("/boot/vmlinuz-6.1.0-13-amd64", "6.1.0-13-amd64"),
        ("/vmlinuz", None),
        ("/boot/vmlinuz-linux", None),
        ("/a/6.1/linux", None),
        ("/boot/initrd.img-6.1", None),
    ],
)
def test_the_release_in_a_name(path: str, release: str | None) -> None:
    assert release_of(path) == release


def test_an_unquoted_semicolon_ends_the_command(tmp_path: Path) -> None:
    line = "menuentry 'a' {\n linux /vmlinuz-6.1 ro pci=x=1:2;3:4 iommu=pt\n}\n"
    quoted = line.replace(";", "\\;")
    found = [
        entry(tmp_path / str(n), {"/boot/grub/grub.cfg": text}).words
        for n, text in enumerate((line, quoted))
    ]
    assert found == [("ro", "pci=x=1:2"), ("ro", "pci=x=1:2;3:4", "iommu=pt")]


def test_both_tries_of_a_cloud_image_count_as_one(tmp_path: Path) -> None:
    text = (
        "menuentry 'Ubuntu' {\n if [ 1 ]; then\n linux /vmlinuz-6.8 root=a ro console=tty1\n else\n"
        " linux /vmlinuz-6.8 root=b ro console=tty1 panic=-1\n fi\n}\n"
    )
    assert entry(tmp_path / "a", {"/boot/grub/grub.cfg": text}).kernel == "6.8"
    two = text.replace("panic=-1", "iommu=pt")
    with pytest.raises(Unavailable, match="no single kernel"):
        entry(tmp_path / "b", {"/boot/grub/grub.cfg": two})


def test_systemd_boot_entries_have_to_agree(tmp_path: Path) -> None:
    same = {
        f"/efi/loader/entries/a-{v}.conf": f"version {v}\nlinux /a/{v}/linux\noptions ro iommu=pt\n"
        for v in ("6.1", "6.2")
    }
    found = entry(tmp_path / "a", same)
    assert (found.words, found.kernel) == (("ro", "iommu=pt"), None)
    one = {path: text for path, text in same.items() if "6.2" in path}
    assert entry(tmp_path / "b", one).kernel == "6.2"
    other = {**same, "/efi/loader/entries/a-6.3.conf": "linux /vmlinuz-6.3\noptions ro\n"}
    with pytest.raises(Unavailable, match="disagree"):
        entry(tmp_path / "c", other)


@pytest.mark.parametrize(
    ("tree", "kind", "words"),
    [
        ({"/boot": None}, NotApplicable, "no boot loader"),
        ({"/boot/efi/EFI/Linux/a.efi": b"MZ"}, Unavailable, "unified"),
        ({"/boot/extlinux/extlinux.conf": "label a\n"}, Unavailable, "extlinux"),
        ({"/etc/default/grub": "GRUB_DEFAULT=0\n"}, Unavailable, "no grub.cfg"),
        ({"/.dockerenv": ""}, NotApplicable, "container"),
        ({"/boot/grub/grub.cfg": "menuentry 'x' {\n chainloader +1\n}\n"}, Unavailable, "single"),
    ],
)
def test_nothing_to_be_found(tmp_path: Path, tree: Tree, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        entry(tmp_path, tree)


def test_what_was_not_recorded_is_not_absent(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/hostname": "a\n"}, source="plain")
    with pytest.raises(Unavailable, match="not recorded"):
        boot_entry(host)
    assert not isinstance(next_kernel(host).release, str)


def test_the_line_of_an_image_is_that_of_its_boot_entry(tmp_path: Path) -> None:
    tree = {"/boot/grub/grub.cfg": HEAD % "0" + DEBIAN, "/proc/cmdline": "a=b -- c=d\n"}
    image = effective_line(make_host(tmp_path / "a", tree, source="image"))
    node = effective_line(make_host(tmp_path / "b", tree))
    assert (image.running, image.file) == (False, "/boot/grub/grub.cfg")
    assert "iommu=pt" in image.words
    assert (node.running, node.words) == (True, ("a=b",))


def test_a_link_to_the_environment_block_is_followed(tmp_path: Path) -> None:
    tree: Tree = {
        "/boot/grub2/grub.cfg": RED_HAT,
        "/boot/grub2/grubenv": Link("../efi/EFI/rocky/grubenv"),
        "/boot/efi/EFI/rocky/grubenv": OLD_ENTRY,
        **ENTRIES,
    }
    assert entry(tmp_path, tree).kernel == "5.14.0-70.el9.x86_64"
