# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from trees import Tree, make_host

from gpuaudit.facts.bootintent import BootIntent, boot_intent
from gpuaudit.facts.nextboot import matters
from gpuaudit.host import NotApplicable, Unavailable
from gpuaudit.snapshot.secrets import harmless

OF_TUNED = (
    'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }'
    '\\$tuned_params"\n'
)
"""What tuned's plugin bootloader writes into /etc/default/grub."""


def intent(folder: Path, tree: Tree) -> BootIntent:
    return boot_intent(make_host(folder, tree))


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"/etc/default/grub": 'GRUB_CMDLINE_LINUX="a=1 b"\n'}, ("a=1", "b")),
        (
            {"/etc/default/grub": "GRUB_CMDLINE_LINUX_DEFAULT='quiet'\nGRUB_CMDLINE_LINUX=a=1\n"},
            ("a=1", "quiet"),
        ),
        (
            {
                "/etc/default/grub": 'GRUB_CMDLINE_LINUX="a=1"\n',
                "/etc/default/grub.d/50-more.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX b=2"\n',
                "/etc/debian_version": "12.1\n",
            },
            ("a=1", "b=2"),
        ),
        (
            {
                "/etc/default/grub": 'GRUB_CMDLINE_LINUX="a=1"\n',
                "/etc/default/grub.d/50-more.cfg": 'GRUB_CMDLINE_LINUX="b=2"\n',
            },
            ("a=1",),
        ),
        ({"/etc/kernel/cmdline": "root=/dev/a iommu=pt\n"}, ("root=/dev/a", "iommu=pt")),
        ({"/etc/default/grub": f'GRUB_CMDLINE_LINUX="a=1"\n{OF_TUNED}'}, ("a=1",)),
        (
            {"/etc/default/grub": f'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n{OF_TUNED}'},
            ("quiet",),
        ),
    ],
)
def test_what_is_asked_for(tmp_path: Path, tree: Tree, words: tuple[str, ...]) -> None:
    assert intent(tmp_path, tree).words == words


@pytest.mark.parametrize(
    "text",
    [
        'GRUB_CMDLINE_LINUX="$(cat /etc/kernel/cmdline)"\n',
        'if [ -e /x ]; then\n  GRUB_CMDLINE_LINUX="a"\nfi\n',
        'GRUB_CMDLINE_LINUX="${A:+b}"\n',
        "GRUB_CMDLINE_LINUX=`cat /x`\n",
    ],
)
def test_programs_are_not_guessed(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unavailable, match="program"):
        intent(tmp_path, {"/etc/default/grub": text})


def test_no_settings_are_no_intent(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        intent(tmp_path, {"/etc/hostname": "a\n"})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("iommu=pt iommu=pt", {"iommu": "pt"}),
        ("pci=noaer pci=realloc,noaer", {"pci": "noaer,realloc"}),
        ("numa-balancing=enable numa_balancing=disable", {"numa_balancing": "disable"}),
        ("hugepagesz=1G hugepages=4", {"hugepages": "hugepagesz=1G hugepages=4"}),
        ("nosmt root=/dev/a", {"nosmt": ""}),
        ("nvidia.NVreg_A=1", {"nvidia.NVreg_A": "1"}),
    ],
)
def test_what_counts(line: str, found: dict[str, str]) -> None:
    names = ("iommu", "pci", "numa_balancing", "hugepage*", "nosmt", "nvidia.*")
    assert matters(tuple(line.split()), names) == found


def test_passwords_of_the_boot_loader_are_not_recorded() -> None:
    text = b"set superusers=a\npassword_pbkdf2 a grub.pbkdf2.sha512.1.AB\nmenuentry a {\n}\n"
    kept = harmless("/boot/grub/grub.cfg", text, sets_variables=False)
    assert b"pbkdf2.sha512" not in kept
    assert kept.splitlines()[1] == b"password_pbkdf2 a hidden"
    assert kept.splitlines()[2:] == text.splitlines()[2:]
