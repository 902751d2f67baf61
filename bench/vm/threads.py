"""Threads of whole TensorFlow processes under a quota, on the machine this runs on. Nothing is emulated or timed.

    sudo .venv/bin/python bench/vm/threads.py [--quota 2]

For a machine with many CPUs: a big host, or the virtual machine of run.sh. Each program (../programs.py) makes a few
steps in a control group of its own, then its threads are counted.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import describe_machine, markdown
from session import Session

PROGRAMS = {"cnn": "plain CNN training", "data": "tf.data + CNN training"}
RUN = (sys.executable, "-m", "tflaunch", "run")
VARIANTS = {"TensorFlow's default": (), "variables only": (*RUN, "--view", "off"), "both": RUN}


def main() -> None:
    parser = argparse.ArgumentParser(description="Threads of whole processes under a quota.")
    parser.add_argument("--quota", type=float, default=2.0, help="CPUs (default 2)")
    quota = parser.parse_args().quota
    print(describe_machine(), flush=True)
    print(
        f"sees      {len(os.sched_getaffinity(0))} CPUs in its affinity mask; the quota is {quota:g} CPUs\n", flush=True
    )
    rows = []
    for name, launcher in VARIANTS.items():
        with Session("threads", quota, launcher, {}) as session:
            # The shortest turn: a step that traces, one to warm up, one that counts.
            rows.append([name, *(str(session.measure(program, 0.01).threads) for program in PROGRAMS)])
    print("\n" + markdown(["threads", *PROGRAMS.values()], rows))


if __name__ == "__main__":
    main()
