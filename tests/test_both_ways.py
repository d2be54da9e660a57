# SPDX-License-Identifier: Apache-2.0
"""Every check is seen to pass and to find fault: none can only pass."""

import json
import os
import subprocess
import sys
from pathlib import Path

from gpuaudit import packs

HERE = Path(__file__).parent
PLUGINS = ("-p", "verdicts_seen", "-p", "no:cacheprovider", "-p", "no:xdist")


def test_every_check_passes_in_one_test_and_finds_fault_in_another(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, str(HERE / "checks")],
        cwd=HERE.parent,
        env={**os.environ, "PYTHONPATH": str(HERE), "VERDICTS_SEEN": str(seen)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    verdicts = {name: set(found) for name, found in json.loads(seen.read_text()).items()}
    checks = packs.load_checks(plugins=False)
    never_good = [name for name in checks if "pass" not in verdicts.get(name, set())]
    never_bad = [name for name in checks if not verdicts.get(name, set()) & {"fail", "warn"}]
    assert (never_good, never_bad) == ([], [])
