# SPDX-License-Identifier: Apache-2.0
"""A site's own check, as a plug-in author would write it."""

from gpuaudit.check import Finding, Severity, check, fails, passes
from gpuaudit.facts.node import Machine


@check("site-hostname-set", severity=Severity.LOW)
def hostname_set(machine: Machine) -> Finding:
    """The node has a name of its own.

    ## Why it matters
    Reports of nodes called localhost cannot be told apart.

    ## Evidence
    /proc/sys/kernel/hostname.

    ## How it is judged
    Any name but localhost.

    ## Exceptions
    None.

    ## What to do
    Set one with hostnamectl.

    ## References
    - https://www.freedesktop.org/software/systemd/man/latest/hostname.html
    """
    if machine.hostname in {None, "localhost"}:
        return fails("hostname", "the node is called localhost", machine.hostname)
    return passes("hostname", machine.hostname)
