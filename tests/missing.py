"""What a test needs and this machine may not have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

# Made by tests/system/setup.sh: images and settings of the environments that the tests of tests/system run in.
ENVIRONMENTS = Path(__file__).parents[1] / "build" / "environments"


def missing(reason: str) -> NoReturn:
    """On a developer's machine a test may be impossible; where all are promised to run (CI=true), that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def environment(name: str) -> Path:
    """The directory of one of the environments, or the end of the test."""
    directory = ENVIRONMENTS / name
    if not directory.is_dir():
        missing(f"the environment {name} is not set up here: tests/system/setup.sh {name}")
    return directory
