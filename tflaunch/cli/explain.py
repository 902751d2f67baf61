"""`tflaunch explain`: what was found, what was decided, and why."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tflaunch.decision import check_strict, decide
from tflaunch.files import open_tree
from tflaunch.machine import read_details
from tflaunch.options import Options


def explain(
    options: Options,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document for programs.")] = False,
    sysroot: Annotated[
        str, typer.Option(metavar="DIR", help="Read a recorded machine's /proc and /sys below DIR.")
    ] = "/",
) -> int:
    """Show the CPUs, the limit, and each number with its reason and source."""
    files = open_tree(sysroot)
    decision = decide(files, options, os.environ)
    details = read_details(files, decision.machine)
    check_strict(files, options)
    if as_json:
        import json

        from tflaunch.document import make_document

        print(json.dumps(make_document(decision, details, files), indent=2))
    else:
        from tflaunch.render import print_explanation

        print_explanation(decision, details, files)
    return 0
