# SPDX-License-Identifier: Apache-2.0
"""Profiles: which checks run, in how much time, and which of them must not stay unknown."""

import fnmatch
from collections.abc import Iterable

import msgspec

from gpuaudit.policy.builtin import read_built_in
from gpuaudit.policy.located import Located, PolicyError, nearest


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One profile of profiles.yaml. The lists hold IDs and globs.

    `keeps_readings`: running totals are kept for the next audit of this node to compare with.
    """

    about: str
    timeout_s: float
    check_timeout_s: float
    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    tolerated: tuple[str, ...] = ()
    keeps_readings: bool = False

    def requires(self, check_id: str) -> bool:
        """True when this check must not end unknown or in error."""
        return named(check_id, self.required) and not named(check_id, self.tolerated)


def load_profiles() -> dict[str, Profile]:
    """Read profiles.yaml. Raises PolicyError."""
    located = Located("profiles.yaml", read_built_in("profiles.yaml"))
    return located.convert(located.value, dict[str, Profile])


def load_profile(name: str) -> Profile:
    """One profile by name. Raises PolicyError naming the nearest."""
    profiles = load_profiles()
    if name not in profiles:
        raise PolicyError(f"no profile is named {name}{nearest(name, list(profiles))}")
    return profiles[name]


def chosen(
    ids: Iterable[str], profile: Profile, select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> list[str]:
    """The IDs that run: those selected, else those of the profile, without the ignored.

    Raises PolicyError for a word that names no check.
    """
    known = sorted(ids)
    for word in (*select, *ignore):
        require_known(word, known)
    wanted = (
        [i for i in known if named(i, select)]
        if select
        else [i for i in known if named(i, profile.include) and not named(i, profile.exclude)]
    )
    return [i for i in wanted if not named(i, ignore)]


def profiles_with(check_id: str) -> tuple[str, ...]:
    """The names of the profiles that run a check. Raises PolicyError."""
    return tuple(n for n, one in load_profiles().items() if chosen((check_id,), one))


def named(check_id: str, words: Iterable[str]) -> bool:
    """True when an ID or glob among `words` names this check."""
    return any(fnmatch.fnmatchcase(check_id, word) for word in words)


def require_known(word: str, known: list[str]) -> None:
    """Raise PolicyError when `word` is neither an ID nor a glob that names one."""
    if not any(fnmatch.fnmatchcase(check_id, word) for check_id in known):
        raise PolicyError(f"no check is named {word}{nearest(word, known)[:200]}")
