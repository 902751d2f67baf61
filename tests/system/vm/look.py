"""What tflaunch says here and what is true, with a program under it (run) or none (explain); options are passed on.

It needs only what Debian's python3 has.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TFLAUNCH = [sys.executable, str(HERE / "tflaunch.pyz")]
what, *options = sys.argv[1:]

explain = subprocess.Popen([*TFLAUNCH, "explain", "--json", *options], stdout=subprocess.PIPE, text=True)
document = {"cgroup": Path("/proc/self/cgroup").read_text()}
if what == "run":
    run = subprocess.run(
        [*TFLAUNCH, "run", *options, str(HERE / "probe.py")], capture_output=True, text=True, check=False
    )
    document.update(status=run.returncode, said=run.stderr, program=json.loads(run.stdout or "null"))
taskset = subprocess.run(["taskset", "-cp", str(os.getpid())], stdout=subprocess.PIPE, text=True, check=True)
document["allowed"] = taskset.stdout.split()[-1]
document["explain"] = json.loads(explain.communicate()[0])
print(json.dumps(document))
