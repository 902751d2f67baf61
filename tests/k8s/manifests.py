"""Where the manifests are, which tools read them, and which pods they make."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from missing import missing

MANIFESTS = Path(__file__).resolve().parents[2] / "k8s"
SECONDS = 60
INSTALL = ".venv/bin/pip install '.[k8s]'"

Object = dict[str, Any]


def needed(module: str) -> Any:
    """A module of the extra k8s."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        missing(f"{module} is missing: {INSTALL}")


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
