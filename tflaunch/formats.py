"""The environment of the plan written for other programs: pure, one function a format.

All write the variables that the plan sizes, with the values the program gets, exported ones that were kept included.
"""

from __future__ import annotations

import json
import shlex

from tflaunch.environment import BINDING_VARIABLES, Change


def sh(changes: tuple[Change, ...]) -> str:
    """For eval in a POSIX shell."""
    return "".join(
        f"unset {change.name}\n" if change.value is None else f"export {change.name}={shlex.quote(change.value)}\n"
        for change in changes
        if change.value is None or change.name not in BINDING_VARIABLES
    )


def dotenv(changes: tuple[Change, ...]) -> str:
    """NAME=VALUE lines: docker run --env-file, env_file of Compose."""
    return "".join(f"{name}={value}\n" for name, value in _values(changes).items())


def as_json(changes: tuple[Change, ...]) -> str:
    """An object of names and values; null for a variable to be removed."""
    removed = {change.name: None for change in changes if change.value is None}
    return json.dumps({**_values(changes), **removed}, indent=2) + "\n"


def docker(changes: tuple[Change, ...]) -> str:
    """Options for docker run: docker run $(tflaunch env --format docker) IMAGE."""
    return "".join(f"--env={name}={value}\n" for name, value in _values(changes).items())


def kubernetes(changes: tuple[Change, ...]) -> str:
    """The env list of a container in a manifest."""
    entries = "".join(f"  - name: {name}\n    value: {json.dumps(value)}\n" for name, value in _values(changes).items())
    return "env:\n" + entries


FORMATS = {"sh": sh, "dotenv": dotenv, "json": as_json, "docker": docker, "kubernetes": kubernetes}


def _values(changes: tuple[Change, ...]) -> dict[str, str]:
    """A valid exported value has blanks only around it; without them it means the same and needs no quotes."""
    return {
        change.name: "".join(change.value.split())
        for change in changes
        if change.value is not None and change.name not in BINDING_VARIABLES
    }
