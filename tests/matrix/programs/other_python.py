"""A subprocess with another Python: the one that this environment was made of, which knows nothing of it."""

import json
import subprocess
import sys

from counts import tell

CODE = """
import json, multiprocessing, os, sys
with multiprocessing.get_context("fork").Pool() as pool:
    print(json.dumps([sys.prefix == sys.base_prefix, sum(pool.map(abs, range(100))), os.cpu_count()]))
"""
command = [sys._base_executable, "-I", "-c", CODE]
is_base, result, cpus = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
print(is_base, result)
tell({"os.cpu_count of the other": cpus})
