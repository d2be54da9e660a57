# SPDX-License-Identifier: Apache-2.0
"""gpuaudit run."""

import sys

import click

from gpuaudit import audit
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.output import FORMATS, deliver, format_for
from gpuaudit.host import Host
from gpuaudit.report import Report

NAGIOS = {0: 0, 1: 2, 3: 3}
NPD = {0: 0, 1: 1, 3: 2}


@click.command("run")
@click.option("--snapshot", metavar="PATH", help="Audit a recording: a folder or an archive.")
@click.option("--root", metavar="DIR", help="Audit an image root that is not running.")
@click.option("--profile", metavar="NAME", help="preflight (default), bringup, nightly or image.")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a site policy file.")
@click.option("--select", multiple=True, metavar="ID", help="Run only these checks (IDs or globs).")
@click.option("--ignore", multiple=True, metavar="ID", help="Leave these checks out.")
@click.option("--waivers", metavar="FILE", help="Accepted findings, with reason, date and owner.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="Default: text, or by the suffix of -o.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the report to a file, atomically.")
@click.option(
    "--exit-codes",
    type=click.Choice(["gpuaudit", "nagios", "npd"]),
    default="gpuaudit",
    show_default=True,
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), metavar="S", help="Seconds for the whole audit."
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Show passes, and where a crashed check crashed."
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
    if snapshot and root:
        refuse("--snapshot and --root exclude each other")
    chosen = format_for(format_name, output)
    request = audit.Request(
        profile=profile or ("image" if root else "preflight"),
        policy_files=policies,
        waiver_file=waivers,
        select=words(select),
        ignore=words(ignore),
        timeout_s=timeout,
    )
    host = open_host(snapshot, root, request.timeout_s)
    done = audit.run(host, request)
    host.close()
    deliver(done.report, chosen, output, verbose=verbose, traces=done.traces)
    sys.exit(mapped(done.report, exit_codes))


def words(values: tuple[str, ...]) -> tuple[str, ...]:
    """`--select a,b --select c` -> a, b, c."""
    return tuple(w.strip() for value in values for w in value.split(",") if w.strip())


def open_host(snapshot: str | None, root: str | None, timeout_s: float | None) -> Host:
    """The machine the options name. NVML may take two thirds of the audit's time."""
    if snapshot:
        return Host.snapshot(snapshot)
    if root:
        return Host.image(root)
    return Host.live(nvml_deadline_s=min(10.0, (timeout_s or 30.0) * 2 / 3))


def mapped(report: Report, exit_codes: str) -> int:
    """The exit code under the chosen contract."""
    code = audit.exit_code(report)
    tables = {"nagios": NAGIOS, "npd": NPD}
    return tables[exit_codes][code] if exit_codes in tables else code
