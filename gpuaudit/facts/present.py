# SPDX-License-Identifier: Apache-2.0
"""Files of which it matters whether they are known not to be there."""

from gpuaudit.host import Host, Unavailable


def text_if_there(host: Host, path: str) -> str | None:
    """The text, None when the file is known not to be there. Raises Unavailable when unread."""
    try:
        return host.read(path)
    except Unavailable as absent:
        if absent.kind == "missing":
            return None
        raise


def target_if_there(host: Host, path: str) -> str | None:
    """Where a path leads, None when it is known not to be there. Raises Unavailable."""
    try:
        return host.resolve(path)
    except Unavailable as absent:
        if absent.kind == "missing":
            return None
        raise
