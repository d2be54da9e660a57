# SPDX-License-Identifier: Apache-2.0
"""Find the checks: the built-in pack, entry points of installed packages, drop-in files.

A drop-in folder is refused file by file unless, when running as root, the file and its folder are
owned by root and writable by nobody else: the audit runs as root.
"""

import importlib
import os
import pkgutil
import stat
import sys
from collections.abc import Iterator, Mapping

from gpuaudit.check import CHECKS, Check, DuplicateCheckError, Expectations

BUILT_IN = "gpuaudit.checks"
GROUP = "gpuaudit.checks"
DROP_IN_FOLDER = "/etc/gpuaudit/checks.d"


class PackError(Exception):
    """A plug-in that cannot be loaded; one line naming it."""


def load_checks(drop_in_folder: str = DROP_IN_FOLDER, *, plugins: bool = True) -> dict[str, Check]:
    """Import every pack and return the registry. Raises PackError."""
    for name in built_in_modules():
        load_module(name, name)
    if plugins:
        for plugin, module in entry_points():
            load_module(module, f"plug-in {plugin}")
        for path in drop_ins(drop_in_folder):
            load_file(path)
    return CHECKS


def built_in_modules() -> list[str]:
    """Module names of the built-in pack, in name order."""
    package = importlib.import_module(BUILT_IN)
    return sorted(f"{BUILT_IN}.{m.name}" for m in pkgutil.iter_modules(package.__path__))


def load_module(module: str, who: str) -> None:
    """Import a module that registers checks. Raises PackError."""
    try:
        importlib.import_module(module)
    except DuplicateCheckError as error:
        raise PackError(str(error)) from None
    except Exception as error:
        if module.startswith(BUILT_IN):
            raise
        raise PackError(f"{who}: {module}: {type(error).__name__}: {error}") from error


def entry_points() -> Iterator[tuple[str, str]]:
    """(name, module) of every `gpuaudit.checks` entry point on sys.path.

    importlib.metadata costs 18-27 ms for this; the files it reads are read here directly
    (entry points specification, packaging.python.org/specifications/entry-points).
    """
    seen: set[str] = set()
    for folder in sys.path:
        for name in folder_names(folder):
            if name.endswith((".dist-info", ".egg-info")) and name not in seen:
                seen.add(name)
                yield from parse_entry_points(os.path.join(folder, name, "entry_points.txt"))


def folder_names(folder: str) -> list[str]:
    """Names in a folder of sys.path; none when it is no folder (a zip file, a stale entry)."""
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def parse_entry_points(path: str) -> Iterator[tuple[str, str]]:
    """The lines of our group in one entry_points.txt; nothing when the file is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif section == GROUP and "=" in line:
            name, _, target = line.partition("=")
            yield name.strip(), target.strip().partition(":")[0]


def drop_ins(folder: str) -> list[str]:
    """The .py files of the drop-in folder in name order. Raises PackError for unsafe ones."""
    names = (
        sorted(n for n in folder_names(folder) if n.endswith(".py"))
        if os.path.isdir(folder)
        else []
    )
    if names:
        require_safe(folder)
    paths = [os.path.join(folder, name) for name in names]
    for path in paths:
        require_safe(path)
    return paths


def require_safe(path: str) -> None:
    """Refuse what others could have written, when running as root. Raises PackError."""
    if os.geteuid() != 0:
        return
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise PackError(f"{path}: refused: a link; put the file itself there")
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PackError(
            f"{path}: refused: must be owned by root and writable by nobody else "
            f"(owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o})"
        )


def load_file(path: str) -> None:
    """Run one drop-in file under a private module name. Raises PackError."""
    name = "gpuaudit_drop_in_" + os.path.basename(path).removesuffix(".py").replace("-", "_")
    if name in sys.modules:
        return
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PackError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except DuplicateCheckError as error:
        raise PackError(str(error)) from None
    except Exception as error:
        raise PackError(f"{path}: {type(error).__name__}: {error}") from error


def sections(checks: Mapping[str, Check]) -> dict[str, type[Expectations]]:
    """The policy sections the checks ask for: name -> record type. Raises PackError on a clash."""
    found: dict[str, type[Expectations]] = {}
    for one in checks.values():
        for kind in one.needs:
            if not issubclass(kind, Expectations):
                continue
            if found.setdefault(kind.section(), kind) is not kind:
                raise PackError(f"{one.origin}: policy section {kind.section()} is taken")
    return found
