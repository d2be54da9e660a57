# SPDX-License-Identifier: Apache-2.0
"""The kernel and command line that the next boot takes.

That is what a boot loader reads: GRUB's generated grub.cfg, entries of the Boot Loader
Specification. What generates these files is in facts/bootintent.py.
"""

from fnmatch import fnmatchcase

from gpuaudit.facts import grub
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.sysctl import is_there, names_in
from gpuaudit.host import Host, NotApplicable, Unavailable

GRUB = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
EFI = "/boot/efi/EFI"
PARTITIONS = ("/boot", "/boot/efi", "/efi")
OTHERWISE = "GRUB's menu on the disk did not start the running kernel: network or hypervisor did"
NETWORK = ("(tftp", "(http", "(pxe")
NO_LOADER = "no boot loader of its own: its kernel comes from the network or the hypervisor"
UNREAD = ("/boot/extlinux/extlinux.conf", "/boot/syslinux/syslinux.cfg")
RUNNING = "/proc/cmdline"
SETTINGS = "/etc/default/grub"
ADDED_UP = frozenset(
    {
        "amd_iommu",
        "intel_iommu",
        "iommu",
        "modprobe.blacklist",
        "module_blacklist",
        "pci",
        "rd.driver.blacklist",
    }
)
"""Parameters of which each occurrence counts: lists of options with commas between."""

POOLS = frozenset({"default_hugepagesz", "hugepages", "hugepagesz"})
"""Their order matters: a size holds for the count behind it (kernel-parameters.txt)."""


class BootEntry(Fact, frozen=True, kw_only=True):
    """The default entry of the boot loader.

    /boot/grub/grub.cfg, /boot/grub2/grub.cfg or /boot/efi/EFI/*/grub.cfg with grubenv, or the files
    in loader/entries. `kernel` is None where its name does not tell the release.
    """

    words: tuple[str, ...]
    file: str
    kernel: str | None


class NextKernel(Fact, frozen=True, kw_only=True):
    """The release that the default entry starts, or why that is not known; `source` is the file."""

    release: str | Absent
    source: str


class EffectiveLine(Fact, frozen=True, kw_only=True):
    """/proc/cmdline; in an image, where nothing runs, the line of the default boot entry."""

    words: tuple[str, ...]
    file: str
    running: bool


@probe
def boot_entry(host: Host) -> BootEntry:
    """Find the entry. Raises NotApplicable where the node has no boot loader of its own."""
    require_own_boot(host)
    if (found := by_grub(host) or by_entries(host)) is not None:
        return found
    if any(is_there(host, path) for path in UNREAD):
        raise Unavailable("the configuration of extlinux and syslinux is not read", "unsupported")
    if any(names_in(host, f"{top}/EFI/Linux") for top in PARTITIONS):
        raise Unavailable("a unified kernel image keeps its command line inside", "unsupported")
    if is_there(host, SETTINGS):
        raise Unavailable(f"{SETTINGS} is there, but no grub.cfg that it was made into", "garbled")
    raise NotApplicable(NO_LOADER)


def require_own_boot(host: Host) -> None:
    """Raise NotApplicable where the files at hand are not those that the node boots from."""
    if (elsewhere := boots_elsewhere(host)) is not None:
        raise NotApplicable(elsewhere.reason)


def by_grub(host: Host) -> BootEntry | None:
    """By GRUB's menu. One on the EFI partition is the one that the firmware starts."""
    paths = efi_menus(host) or [path for path in GRUB if is_menu(host, path)]
    menus = {host.resolve(path): path for path in paths}
    if menus and started_otherwise(host):
        raise NotApplicable(OTHERWISE)
    if len(menus) > 1:
        raise Unavailable(f"which of these menus is used is not read: {', '.join(paths)}")
    return next((in_menu(host, path, host.read(path)) for path in menus.values()), None)


def started_otherwise(host: Host) -> bool:
    """True when the running kernel did not come from a disk through GRUB.

    GRUB puts BOOT_IMAGE= and the path in front of each line (grub-core/loader, LINUX_IMAGE);
    hypervisors and iPXE do not. PXELINUX passes initrd= on, and BOOTIF= (Syslinux, config.txt).
    """
    try:
        words = host.read(RUNNING).split()
    except (Unavailable, NotApplicable):
        return False
    image = next((w.partition("=")[2] for w in words if w.startswith("BOOT_IMAGE=")), "")
    by_syslinux = any(word.startswith(("initrd=", "BOOTIF=")) for word in words)
    return by_syslinux or not image.startswith(("/", "(")) or image.startswith(NETWORK)


def is_menu(host: Host, path: str) -> bool:
    """Whether there is a menu. Raises Unavailable where a file could not be read."""
    return grub.is_menu(text_if_there(host, path) or "")


def efi_menus(host: Host) -> list[str]:
    """Where RHEL 8 and older put the menu; a user may not look there, and mostly finds stubs."""
    vendors = host.names(EFI)
    paths = [f"{EFI}/{vendor}/grub.cfg" for vendor in vendors]
    return [path for path in paths if grub.is_menu(host.optional(path) or "")]


def in_menu(host: Host, path: str, text: str) -> BootEntry:
    """The default entry of a menu. Raises Unavailable when it starts no one kernel."""
    environment = text_if_there(host, f"{path.rpartition('/')[0]}/grubenv") or ""
    variables = grub.variables_of(text, environment)
    entries = [as_item(one) for one in sorted_entries(host, "/boot")] if "blscfg" in text else []
    item = grub.chosen(grub.menu_of(text, entries), grub.default_of(variables))
    starts = item.starts if item else []
    found = {tuple(command_words(start, variables)) for start in starts}
    if len({bare(words) for words in found}) != 1:
        raise Unavailable(f"{path}: the default entry starts no single kernel", "garbled")
    words = found.pop()
    listed = next((one for one in entries if one is item), None)
    where = f"/boot/loader/entries/{item.names[0]}.conf" if listed and item else path
    return BootEntry(words=words[1:], file=where, kernel=grub.release_of(words[0]))


def as_item(entry: dict[str, str]) -> grub.Item:
    """An entry of the Boot Loader Specification as one of GRUB's menu.

    blscfg makes a command of it, which GRUB's shell runs like any other.
    """
    start = f"{entry.get('linux', '')} {entry.get('options', '')}"
    return grub.Item((entry["id"], entry.get("title", "")), [start], [])


def command_words(start: str, variables: dict[str, str]) -> list[str]:
    """Path of the kernel and the words behind it, or an empty path."""
    words = grub.shell_words(grub.expanded(start, variables)) or [""]
    return words[: words.index("--")] if "--" in words else words


def bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """Without what differs between the two tries of Ubuntu's cloud images (grub.d/10_linux)."""
    return tuple(word for word in words if not word.startswith(("root=", "panic=")))


def sorted_entries(host: Host, top: str) -> list[dict[str, str]]:
    """The files in loader/entries, the newest kernel first. Raises Unavailable."""
    folder = f"{top}/loader/entries"
    names = [name for name in names_in(host, folder) if name.endswith(".conf")]
    names.sort(key=grub.version_key_of_entry, reverse=True)
    return [grub.listed_entry(name, host.read(f"{folder}/{name}")) for name in names]


def by_entries(host: Host) -> BootEntry | None:
    """By systemd-boot. Which entry it takes is in its EFI variables: all have to agree."""
    found = [(top, one) for top in PARTITIONS for one in sorted_entries(host, top)]
    entries = [(top, one) for top, one in found if "rescue" not in one["id"] and "linux" in one]
    if not entries:
        return None
    lines = {tuple(grub.kernel_words(one.get("options", ""))) for _, one in entries}
    if len(lines) > 1:
        raise Unavailable("the boot entries disagree, and which is the default is not read")
    releases = {one.get("version") or grub.release_of(one["linux"]) for _, one in entries}
    top, first = entries[0]
    return BootEntry(
        words=lines.pop(),
        file=f"{top}/loader/entries/{first['id']}.conf",
        kernel=releases.pop() if len(releases) == 1 else None,
    )


@probe
def next_kernel(host: Host) -> NextKernel:
    """Ask the boot loader; never raises."""
    try:
        entry = boot_entry(host)
    except NotApplicable as absent:
        return NextKernel(release=Absent("unsupported", absent.reason), source=absent.reason)
    except Unavailable as absent:
        return NextKernel(release=Absent("missing", absent.reason), source=absent.reason)
    unnamed = Absent("failed", f"{entry.file} does not name the kernel's release")
    return NextKernel(release=entry.kernel or unnamed, source=entry.file)


@probe
def effective_line(host: Host) -> EffectiveLine:
    """Read the line. Raises as boot_entry does in an image, Unavailable."""
    try:
        words = grub.kernel_words(host.read(RUNNING))
    except NotApplicable:
        entry = boot_entry(host)
        return EffectiveLine(words=entry.words, file=entry.file, running=False)
    return EffectiveLine(words=tuple(words), file=RUNNING, running=True)


def matters(words: tuple[str, ...], patterns: tuple[str, ...]) -> dict[str, str]:
    """Parameter -> what counts of it, for those that one of the patterns names.

    The kernel takes - and _ in names as one, and of a parameter given twice the last.
    """
    found: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        name = key.replace("-", "_")
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if name in POOLS:
            found["hugepages"] = f"{found.get('hugepages', '')} {word}".strip()
        elif name in ADDED_UP:
            parts = {*found.get(name, "").split(","), *value.split(",")} - {""}
            found[name] = ",".join(sorted(parts))
        else:
            found[name] = value
    return found
