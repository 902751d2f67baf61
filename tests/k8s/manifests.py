"""Where the manifests are, which tools read them, and which pods they make."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

MANIFESTS = Path(__file__).resolve().parents[2] / "k8s"
SECONDS = 60

Object = dict[str, Any]


def missing(what: str) -> NoReturn:
    """A test that cannot run here: where all of them must run, that is a failure."""
    text = f"{what} is missing: .venv/bin/pip install '.[k8s]'"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


def needed(module: str) -> Any:
    """A module of the extra k8s."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        missing(module)


def pod_of(manifest: Object) -> Object | None:
    """The pod that the object makes, if it makes one."""
    if manifest["kind"] == "TFJob":
        (replicas,) = manifest["spec"]["tfReplicaSpecs"].values()
        template = replicas["template"]
    elif manifest["kind"] in {"Job", "Deployment"}:
        template = manifest["spec"]["template"]
    else:
        return None
    metadata = {"name": manifest["metadata"]["name"], **template.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
