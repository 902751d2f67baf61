"""What tflaunch says here and what is true, with a program under it (run) or none (explain); options are passed on.

It needs only what Debian's python3 has. `explain` is called and not started: an emulated machine takes seconds to start
a program.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SINGLE_FILE = str(HERE / "tflaunch.pyz")
sys.path.insert(0, SINGLE_FILE)

import tflaunch  # noqa: E402

what, *options = sys.argv[1:]
command = [sys.executable, SINGLE_FILE, "run", *options, str(HERE / "probe.py")]
run = None
if what == "run":
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
taskset = subprocess.run(["taskset", "-cp", str(os.getpid())], stdout=subprocess.PIPE, text=True, check=True)
named = dict(zip((option.removeprefix("--") for option in options[::2]), options[1::2]))
document = {
    "cgroup": Path("/proc/self/cgroup").read_text(),
    "allowed": taskset.stdout.split()[-1],
    "explain": tflaunch.explain(**named),
}
if run:
    out, said = run.communicate()
    document.update(status=run.returncode, said=said, program=json.loads(out or "null"))
print(json.dumps(document))
