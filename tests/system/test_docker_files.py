"""The files in docker/: what their linters say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from missing import missing

DOCKER = Path(__file__).parents[2] / "docker"
SECONDS = 60


def run_tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A tool of the `k8s` extra, from the environment that runs the tests."""
    path = shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)
    if path is None:
        missing(f"{name} is not installed: .venv/bin/pip install '.[k8s]'")
    return subprocess.run([path, *arguments], cwd=DOCKER, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.addon"])
def test_hadolint_has_nothing_to_say(name):
    done = run_tool("hadolint", "--no-color", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_yamllint_has_nothing_to_say():
    done = run_tool("yamllint", "--strict", "--format", "parsable", "compose.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
