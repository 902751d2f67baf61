"""The manifests as a cluster gets them: built by kubectl's own kustomize."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from k8s.manifests import INSTALL, SECONDS, Object, needed
from missing import missing


@pytest.fixture(scope="session")
def kubectl() -> Callable[..., str]:
    """What kubectl prints. It knows no cluster."""
    path = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")
    if path is None:
        missing(f"kubectl is missing: {INSTALL}")

    def run(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [path, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "KUBECONFIG": os.devnull},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def build(kubectl: Callable[..., str]) -> Callable[[Path], list[Object]]:
    """The objects of a directory with a kustomization."""
    yaml = needed("yaml")
    built: dict[Path, list[Object]] = {}

    def objects(directory: Path) -> list[Object]:
        if directory not in built:
            built[directory] = list(yaml.safe_load_all(kubectl("kustomize", str(directory))))
        return built[directory]

    return objects
