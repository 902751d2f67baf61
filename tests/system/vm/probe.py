"""A program under tflaunch: what it was given, what it sees, and where it may truly run."""

import json
import os
import subprocess

without_view = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
taskset = subprocess.run(
    ["taskset", "-cp", str(os.getpid())], stdout=subprocess.PIPE, text=True, check=True, env=without_view
)
print(
    json.dumps(
        {
            "sees": [len(os.sched_getaffinity(0)), os.cpu_count(), os.sysconf("SC_NPROCESSORS_ONLN")],
            "mask": taskset.stdout.split()[-1],
            "variables": {name: value for name, value in os.environ.items() if name.endswith("_THREADS")},
        }
    )
)
