"""What tflaunch says here with the options that are given, and what is true; python3 has nothing installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

TFLAUNCH = [sys.executable, str(Path(__file__).with_name("tflaunch.pyz"))]
PROBE = str(Path(__file__).with_name("probe.py"))


def output(*command: str) -> str:
    """It ends well, or there is nothing to look at."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


options = sys.argv[1:]
run = subprocess.run([*TFLAUNCH, "run", *options, PROBE], capture_output=True, text=True, check=False)
document = {
    "allowed": output("taskset", "-cp", str(os.getpid())).split()[-1],
    "cgroup": Path("/proc/self/cgroup").read_text(),
    "explain": json.loads(output(*TFLAUNCH, "explain", "--json", *options)),
    "status": run.returncode,
    "said": run.stderr,
    "program": json.loads(run.stdout or "null"),
}
print(json.dumps(document))
