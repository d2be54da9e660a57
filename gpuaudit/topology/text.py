# SPDX-License-Identifier: Apache-2.0
"""The topology as text: devices, matrix, tree."""

from collections.abc import Iterable, Iterator, Mapping

from gpuaudit.topology.beyond import NvLinkView, UplinkView
from gpuaudit.topology.forest import Branch, forest
from gpuaudit.topology.marks import Mark, by_place, mark_text, shown_marks
from gpuaudit.topology.nodes import node_lines
from gpuaudit.topology.view import Device, Link, Pair, View

Marks = Mapping[str, Iterable[Mark]]
LEGEND = """\
Path:   PIX one switch, PXB several switches, PHB one host bridge (CPU), NODE host bridges of one
        NUMA node, SYS across NUMA nodes, ? cannot be told; PHB? is a class in doubt.
        NV18 is NVLink with 18 links; NV alone: some of the links of both join them.
Number: gigabytes a second in each direction that the narrowest link on the way carries as trained
        now. Below a common switch only the links up to it count. CPU and fabric are not counted.
        Of a shared uplink: what it can carry, and what each GPU gets when all talk to the host."""


def render(view: View) -> str:
    """All of it, ending in a line break."""
    marks = by_place(view)
    parts = [*(f"note: {note}" for note in view.notes)]
    parts += ["", *(marked_node(line, marks) for line in node_lines(view.numa, view.cpus))]
    if not view.devices:
        if not any(note.startswith("PCI: ") for note in view.notes):
            parts.append("no GPU, accelerator, NVSwitch, NIC or NVMe drive is on the PCI bus")
        return "\n".join([*parts, *finding_lines(view)]) + "\n"
    parts += ["", *table(device_rows(view, marks)), "", *table(matrix_rows(view))]
    parts += [f"{doubt}: {pairs}" for doubt, pairs in doubts(view)]
    parts += beyond_lines(view)
    for branch in forest(view):
        parts += ["", *tree_lines(branch, marks)]
    parts += finding_lines(view)
    return "\n".join([*parts, "", LEGEND]).lstrip("\n") + "\n"


def table(rows: list[list[str]]) -> list[str]:
    """Columns as wide as their longest cell."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    cells = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in cells]


def marked_node(line: str, marks: Marks) -> str:
    """The line of a NUMA node with what was found there."""
    found = mark_text(marks.get(line.partition("  ")[0], ()))
    return f"{line}  ! {found}" if found else line


def finding_lines(view: View) -> Iterator[str]:
    """What is marked above, in words; then what is about no place in it."""
    marks = shown_marks(view)
    if marks:
        rows = [[str(mark), mark.subject, mark.message] for mark in marks]
        yield from ("", "Findings (gpuaudit explain tells of each check):", *table(rows))


def device_rows(view: View, marks: Marks) -> list[list[str]]:
    """One line a device, with the link that decides what its way to the root complex carries."""
    head = ["", "address", "id", "NUMA", "own link", "to root GB/s", "decided by link", "name"]
    rows = ([*device_row(d), mark_text(marks.get(d.address, ()))] for d in view.devices)
    return [[*head, "findings" if marks else ""], *rows]


def device_row(device: Device) -> list[str]:
    """The cells of one device."""
    tight = device.to_root.narrowest
    return [
        device.label,
        device.address,
        device.id,
        node_text(device),
        link_text(device.own_link),
        now_of_could(device.to_root.now_gb_per_s, device.to_root.could_gb_per_s),
        f"{tight.upper} -> {tight.lower}" if tight else "-",
        device.name or "",
    ]


def node_text(device: Device) -> str:
    """'0', '2?' for a node in doubt, '?' where none is known."""
    if device.numa_node is None or device.numa_node < 0:
        return "?" if device.cpu_node is None else str(device.cpu_node)
    return f"{device.numa_node}?" if device.numa_doubt else str(device.numa_node)


def link_text(link: Link | None) -> str:
    """'Gen4 x16 of Gen5 x16', 'Gen5 x16', '?'."""
    if link is None:
        return "-"
    if link.now is None:
        return "?"
    if link.could is None or link.could == link.now:
        return str(link.now)
    return f"{link.now} of {link.could}"


def now_of_could(now: float | None, could: float | None) -> str:
    """'31.5 of 63.0', '63.0', '?'."""
    if now is None:
        return "?"
    return f"{now:.1f}" if could is None or could <= now else f"{now:.1f} of {could:.1f}"


def matrix_rows(view: View) -> list[list[str]]:
    """Path class and rate of every pair that moves training data."""
    labels = [d.label for d in in_matrix(view)]
    joined = nvlink_cells(view)
    cells = {(p.one, p.other): joined.get((p.one, p.other)) or cell(p) for p in view.pairs}
    rows = [[a, *(cells.get((a, b)) or cells.get((b, a), "X") for b in labels)] for a in labels]
    return [["", *labels], *rows]


def nvlink_cells(view: View) -> dict[tuple[str, str], str]:
    """'NV18 478' for each pair that NVLink joins, in the order in which the matrix has them."""
    labels = {device.address: device.label for device in view.devices}
    return {
        (labels[p.one], labels[p.other]): f"NV{p.links or ''} {rate_text(p.gb_per_s)}".rstrip()
        for p in view.beyond.nvpairs
        if p.one in labels and p.other in labels
    }


def rate_text(gb_per_s: float | None) -> str:
    """'478', or nothing."""
    return "" if gb_per_s is None else f"{gb_per_s:.0f}"


def beyond_lines(view: View) -> Iterator[str]:
    """NVLink of each GPU, then the links that GPUs share."""
    labels = {device.address: device.label for device in view.devices}
    links = [nvlink_row(one, labels.get(one.address, one.address)) for one in view.beyond.nvlinks]
    if links:
        yield from ("", *table([["NVLink", "links up", "GB/s", "to"], *links]))
    shared = [uplink_row(one, labels) for one in view.beyond.uplinks]
    if shared:
        head = ["shared uplink", "GPUs", "beside them", "GB/s", "a GPU, all at once"]
        yield from ("", *table([head, *shared]))


def nvlink_row(one: NvLinkView, label: str) -> list[str]:
    """The cells of one GPU."""
    rate = "?" if one.gb_per_s is None else f"{one.gb_per_s:.1f}"
    return [label, f"{one.up} of {one.links}", rate, one.to or "?"]


def uplink_row(one: UplinkView, labels: Mapping[str, str]) -> list[str]:
    """The cells of one link."""
    named = (" ".join(labels.get(a, a) for a in some) or "-" for some in (one.gpus, one.others))
    rates = ("?" if r is None else f"{r:.1f}" for r in (one.gb_per_s, one.each_gb_per_s))
    return [f"{one.upper} -> {one.lower}", *named, *rates]


def in_matrix(view: View) -> tuple[Device, ...]:
    """GPUs, accelerators and NICs; everything where there are none of them."""
    chosen = tuple(d for d in view.devices if d.role in {"gpu", "accelerator", "nic"})
    return chosen or view.devices


def cell(pair: Pair) -> str:
    """'PIX 63', 'PHB? 63', 'SYS'."""
    doubt = "?" if pair.doubt and pair.path != "?" else ""
    rate = pair.capacity.now_gb_per_s
    if rate is None:
        return f"{pair.path}{doubt}"
    return f"{pair.path}{doubt} {rate:.0f}" if rate >= 10 else f"{pair.path}{doubt} {rate:.1f}"


def doubts(view: View) -> Iterator[tuple[str, str]]:
    """Each reason for a class that cannot be told, with the pairs it is about."""
    found: dict[str, list[str]] = {}
    for pair in view.pairs:
        if pair.path == "?":
            found.setdefault(pair.doubt or "", []).append(f"{pair.one}-{pair.other}")
    for doubt, pairs in found.items():
        more = f" and {len(pairs) - 6} more" if len(pairs) > 6 else ""
        yield f"? {doubt}", ", ".join(pairs[:6]) + more


def tree_lines(branch: Branch, marks: Marks, indent: str = "", tail: str = "") -> Iterator[str]:
    """One line a port or device, drawn as a tree."""
    link = f"  {link_text(branch.link)}" if branch.link else ""
    found = mark_text(marks.get(branch.address, ()))
    yield f"{indent}{tail}{branch.title}{link}" + (f"  ! {found}" if found else "")
    deeper = indent + {"": "", "|- ": "|  ", "`- ": "   "}[tail]
    for i, child in enumerate(branch.below):
        last = i == len(branch.below) - 1
        yield from tree_lines(child, marks, deeper, "`- " if last else "|- ")
