# SPDX-License-Identifier: Apache-2.0
"""gpuaudit run."""

import sys

import click

from gpuaudit import audit, packs
from gpuaudit.cli import parameters
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.output import FORMATS, deliver, format_for
from gpuaudit.cli.state import give, keep, read_first
from gpuaudit.host import Host
from gpuaudit.policy.profiles import load_profile
from gpuaudit.report import Report

NAGIOS = {0: 0, 1: 2, 3: 3}
NPD = {0: 0, 1: 1, 3: 2}


@click.command("run")
@parameters.option(
    "--snapshot",
    metavar="PATH",
    complete=parameters.files,
    help="Audit a recording: a folder or an archive.",
)
@parameters.option(
    "--root",
    metavar="DIR",
    complete=parameters.folders,
    help="Audit an image root that is not running.",
)
@parameters.option(
    "--profile",
    metavar="NAME",
    complete=parameters.profiles,
    help="preflight (default), bringup, nightly or image (default with --root).",
)
@parameters.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    complete=parameters.files,
    help="Add a site policy file.",
)
@parameters.option(
    "--select",
    multiple=True,
    metavar="ID",
    complete=parameters.checks,
    help="Run only these checks: IDs or globs, joined by commas.",
)
@parameters.option(
    "--ignore",
    multiple=True,
    metavar="ID",
    complete=parameters.checks,
    help="Leave these checks out.",
)
@parameters.option(
    "--waivers",
    metavar="FILE",
    complete=parameters.files,
    help="Accepted findings, with reason, date and owner.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="Default: text, or by the suffix of -o.",
)
@parameters.option(
    "-o",
    "--output",
    metavar="FILE",
    complete=parameters.files,
    help="Write the report to a file, atomically. [- is standard output]",
)
@click.option(
    "--exit-codes",
    type=click.Choice(["gpuaudit", "nagios", "npd"]),
    default="gpuaudit",
    show_default=True,
)
@click.option(
    "--timeout",
    type=parameters.seconds,
    metavar="S",
    help="Seconds for the whole audit. [default: the profile's]",
)
@click.option(
    "--interval",
    type=parameters.seconds,
    metavar="S",
    help="Read the error counters twice, S seconds apart, and judge how they grow.",
)
@parameters.option(
    "--state",
    metavar="DIR",
    complete=parameters.folders,
    help="Keep the error counters there for the next audit to compare with. "
    "[nightly: /var/lib/gpuaudit]",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show also what is good, what does not apply, and where a crashed check crashed.",
)
def command(
    *,
    snapshot: str | None,
    root: str | None,
    profile: str | None,
    policies: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    waivers: str | None,
    format_name: str | None,
    output: str | None,
    exit_codes: str,
    timeout: float | None,
    interval: float | None,
    state: str | None,
    verbose: bool,
) -> None:
    """Audit this machine, a snapshot or an image root.

    \b
    gpuaudit run
    gpuaudit run --profile bringup -o report.json
    gpuaudit run --snapshot node.tar.gz --select 'pcie-*'
    gpuaudit run --root /mnt/image --profile image

    Exit codes: 0 no failure, 1 at least one failure, 2 wrong use, 3 nothing failed but something
    the profile requires could not be told. nagios maps them to 0, 2, 3, 3; npd to 0, 1, 2, 2.
    """
    output = parameters.standard_output(output)
    if snapshot and root:
        refuse("--snapshot and --root exclude each other")
    if (snapshot or root) and (interval or state):
        refuse("--interval and --state are for the machine that runs; a recording does not change")
    chosen = format_for(format_name, output)
    name = profile or ("image" if root else "preflight")
    limit_s = timeout or load_profile(name).timeout_s
    request = audit.Request(
        profile=name,
        policy_files=policies,
        waiver_file=waivers,
        select=words(select),
        ignore=words(ignore),
        timeout_s=limit_s,
    )
    if select or ignore:
        parameters.require_checks((*request.select, *request.ignore), packs.load_checks())
    first = read_first(request, interval) if interval else None
    host = open_host(snapshot, root, limit_s)
    give(host, state, first)
    done = audit.run(host, request)
    host.close()
    if host.source == "live" and (state or load_profile(name).keeps_readings):
        keep(state, done.reading)
    if not done.report.results:
        refuse("no check is left to run: --ignore takes away all that are selected")
    deliver(done.report, chosen, output, verbose=verbose, traces=done.traces)
    sys.exit(mapped(done.report, exit_codes))


def words(values: tuple[str, ...]) -> tuple[str, ...]:
    """`--select a,b --select c` -> a, b, c."""
    found = tuple(w.strip() for value in values for w in value.split(",") if w.strip())
    if values and not found:
        refuse(f"{','.join(values)} names no check; give an ID or a glob")
    return found


def open_host(snapshot: str | None, root: str | None, timeout_s: float) -> Host:
    """The machine the options name. NVML may take two thirds of the audit's time."""
    if snapshot:
        return Host.snapshot(snapshot)
    if root:
        return Host.image(parameters.image_root(root))
    return Host.live(nvml_deadline_s=timeout_s * 2 / 3)


def mapped(report: Report, exit_codes: str) -> int:
    """The exit code under the chosen contract."""
    code = audit.exit_code(report)
    tables = {"nagios": NAGIOS, "npd": NPD}
    return tables[exit_codes][code] if exit_codes in tables else code
