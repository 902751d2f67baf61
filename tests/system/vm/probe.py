"""A program under tflaunch: what it was given, what it sees, and where the kernel says that it may run."""

import json
import os
from pathlib import Path

(mask,) = (
    line.split()[1]
    for line in Path("/proc/self/status").read_text().splitlines()
    if line.startswith("Cpus_allowed_list:")
)
print(
    json.dumps(
        {
            "sees": [len(os.sched_getaffinity(0)), os.cpu_count(), os.sysconf("SC_NPROCESSORS_ONLN")],
            "mask": mask,
            "variables": {name: value for name, value in os.environ.items() if name.endswith("_THREADS")},
        }
    )
)
