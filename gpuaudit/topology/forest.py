# SPDX-License-Identifier: Apache-2.0
"""The ways of all devices folded into one tree a host bridge."""

import msgspec

from gpuaudit.topology.view import Device, Link, View


class Branch(msgspec.Struct, kw_only=True):
    """A host bridge, port or device; `link` is the one that ends in it, seen from above."""

    title: str
    address: str = ""
    device: Device | None = None
    link: Link | None = None
    below: list["Branch"] = []


def forest(view: View) -> tuple[Branch, ...]:
    """One tree a host bridge, in the order of the names."""
    roots: dict[str, Branch] = {}
    known: dict[str, Branch] = {}
    for device in view.devices:
        name = device.root or "place unknown"
        add(roots.setdefault(name, Branch(title=name)), device, known)
    for name, root in roots.items():
        root.title += node_of(view, name)
        sort(root)
    return tuple(roots[name] for name in sorted(roots))


def add(root: Branch, device: Device, known: dict[str, Branch]) -> None:
    """Hang a device under its ports, which other devices may have brought already."""
    links = {link.lower: link for link in device.links}
    at = root
    for place, port in enumerate(device.ports):
        if port not in known:
            title = f"{port}  {port_word(place, len(device.ports))}".rstrip()
            known[port] = Branch(title=title, address=port, link=links.get(port))
            at.below.append(known[port])
        at = known[port]
    title = "  ".join((device.address, device.label, device.name or device.id))
    own = device.own_link if device.own_link and device.own_link.lower not in known else None
    at.below.append(Branch(title=title, address=device.address, device=device, link=own))


def port_word(place: int, ports: int) -> str:
    """A root port, then pairs of a switch's upstream and one of its downstream ports."""
    if place == 0:
        return "root port"
    return "switch" if place % 2 and place < ports - 1 else ""


def node_of(view: View, root: str) -> str:
    """'  NUMA node 0', where all devices of a host bridge agree on it."""
    nodes = {device.cpu_node for device in view.devices if device.root == root}
    only = nodes.pop() if len(nodes) == 1 else None
    return "" if only is None else f"  NUMA node {only}"


def sort(branch: Branch) -> None:
    """By title, which starts with the address."""
    branch.below.sort(key=lambda b: b.title)
    for child in branch.below:
        sort(child)


def rows(branch: Branch, depth: int = 0) -> list[tuple[int, Branch]]:
    """(depth, branch) from top to bottom."""
    below = (row for child in branch.below for row in rows(child, depth + 1))
    return [(depth, branch), *below]
