# SPDX-License-Identifier: Apache-2.0
"""Every check belongs to the profiles it is of use in, and every word of a profile names one."""

import pytest

from gpuaudit import packs
from gpuaudit.check import Severity
from gpuaudit.policy.profiles import Profile, chosen, load_profiles, named, profiles_with

CHECKS = dict(packs.load_checks(plugins=False))
PROFILES = load_profiles()
GRAVE = {Severity.CRITICAL, Severity.HIGH}
OF_A_JOB = {"cpu-load", "cpu-affinity-width", "gpu-memory-free", "gpu-processes-left"}
OF_THE_NEXT_BOOT = {"driver-next-kernel", "driver-persistence-enabled", "sysctl-persisted"}


def left_out(name: str) -> set[str]:
    return set(CHECKS) - set(chosen(CHECKS, PROFILES[name]))


def test_every_check_runs_at_bring_up_and_in_one_more_profile() -> None:
    where = {one: set(profiles_with(one)) for one in CHECKS}
    assert [one for one, names in where.items() if "bringup" not in names] == []
    assert [one for one, names in where.items() if not names & {"preflight", "nightly"}] == []


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_every_word_names_a_check_that_it_can_change(profile: Profile) -> None:
    everything = set(CHECKS)
    for word in (*profile.include, *profile.exclude):
        assert {one for one in everything if named(one, [word])}, word
    kept = chosen(everything, profile)
    for word in profile.required:
        assert [one for one in kept if named(one, [word])], word
    for word in profile.tolerated:
        assert [one for one in kept if named(one, [word]) and named(one, profile.required)], word


def test_before_a_job_nothing_serious_is_left_out() -> None:
    """A check for a running node, at least as grave as high, is worth its milliseconds then."""
    grave = {one for one in left_out("preflight") if CHECKS[one].severity in GRAVE}
    assert grave <= OF_THE_NEXT_BOOT
    assert left_out("preflight") >= OF_THE_NEXT_BOOT
    assert not left_out("preflight") & OF_A_JOB


def test_a_node_at_work_is_not_asked_for_what_work_changes() -> None:
    assert left_out("nightly") >= OF_A_JOB
    assert not left_out("nightly") & OF_THE_NEXT_BOOT
    assert PROFILES["nightly"].keeps_readings
    assert left_out("bringup") == left_out("image") == set()
