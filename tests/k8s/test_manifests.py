"""The Kubernetes manifests: built, known to Kubernetes field by field, and understood by tflaunch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from k8s.manifests import MANIFESTS, SECONDS, Object, needed, pod_of

Build = Callable[[Path], list[Object]]

OVERLAYS = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
DIRECTORIES = ["base", *(f"overlays/{name}" for name in OVERLAYS)]

# Kubernetes releases whose API the manifests must fit: the oldest that has each field, and a recent one.
POLICY_VERSIONS = ["1.36", "1.37"]
VERSIONS = ["1.31", *POLICY_VERSIONS]

# The fields of a TFJob (kubeflow.org/v1) that the manifests may use, as its CustomResourceDefinition has them. The pods
# inside are checked as pods.
TFJOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "TFJob"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["tfReplicaSpecs"],
            "properties": {
                "enableDynamicWorker": {"type": "boolean"},
                "successPolicy": {"enum": ["", "AllWorkers"]},
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "activeDeadlineSeconds": {"type": "integer"},
                        "backoffLimit": {"type": "integer"},
                        "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                        "suspend": {"type": "boolean"},
                        "ttlSecondsAfterFinished": {"type": "integer"},
                    },
                },
                "tfReplicaSpecs": {
                    "type": "object",
                    "propertyNames": {"enum": ["Chief", "Master", "Worker", "PS", "Evaluator"]},
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "replicas": {"type": "integer", "minimum": 1},
                            "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
                            "template": {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}},
                            },
                        },
                    },
                },
            },
        },
    },
}


def pods(objects: list[Object]) -> list[Object]:
    return [pod for pod in map(pod_of, objects) if pod]


def containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def the_pod(build: Build, overlay: str) -> Object:
    (pod,) = pods(build(MANIFESTS / "overlays" / overlay))
    return pod


def the_container(build: Build, overlay: str) -> Object:
    (container,) = the_pod(build, overlay)["spec"]["containers"]
    return container


def tflaunch(*arguments: str, directory: Path | None = None, **variables: str) -> str:
    """What tflaunch prints, started in the directory."""
    done = subprocess.run(
        [sys.executable, "-m", "tflaunch", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=directory,
        env={**{name: value for name, value in os.environ.items() if not name.startswith("TFLAUNCH_")}, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_yamllint_has_nothing_to_say() -> None:
    needed("yamllint")
    done = subprocess.run(
        [sys.executable, "-m", "yamllint", "--strict", "-c", str(MANIFESTS / ".yamllint"), str(MANIFESTS)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_each_says_first_when_to_use_it(directory: str) -> None:
    head, _, _ = (MANIFESTS / directory / "kustomization.yaml").read_text().partition("apiVersion")
    assert "\n# When: " in head


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_kubernetes_knows_each_field(build: Build, directory: str) -> None:
    validate = needed("kubernetes_validate").validate
    objects = build(MANIFESTS / directory)
    assert objects
    for manifest in objects:
        if manifest["kind"] == "TFJob":
            needed("jsonschema").validate(manifest, TFJOB)
            continue
        for version in POLICY_VERSIONS if "Policy" in manifest["kind"] else VERSIONS:
            assert validate(manifest, version, strict=True) == version
    for pod in pods(objects):
        for version in VERSIONS:
            assert validate(pod, version, strict=True) == version


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_kubectl_decodes_what_makes_pods(build: Build, kubectl: Callable[..., str], directory: str) -> None:
    """With Kubernetes' own types, so that a quantity that is none is refused, as the schemas do not."""
    for pod in pods(build(MANIFESTS / directory)):
        printed = kubectl("set", "env", "--local", "-f", "-", "ADDED=1", "-o", "json", text=json.dumps(pod))
        for container in json.loads(printed)["spec"]["containers"]:
            assert {"name": "ADDED", "value": "1"} in container["env"]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_pods_ask_for_no_privilege(build: Build, directory: str) -> None:
    for pod in pods(build(MANIFESTS / directory)):
        of_pod = pod["spec"]["securityContext"]
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"])
        assert all(set(volume) == {"name", "emptyDir"} for volume in pod["spec"]["volumes"])
        for container in containers(pod):
            security = {**of_pod, **container["securityContext"]}
            assert security["runAsNonRoot"] is True
            assert security["runAsUser"] > 0
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_programs_can_write_below_tmp_and_have_the_memory_they_may_use(build: Build, directory: str) -> None:
    for pod in pods(build(MANIFESTS / directory)):
        for container in pod["spec"]["containers"]:
            assert {"name": "HOME", "value": "/tmp"} in container["env"]
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        for container in containers(pod):
            assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("overlay", [name for name in OVERLAYS if name != "injection"])
def test_tflaunch_takes_the_arguments(build: Build, overlay: str, tmp_path: Path) -> None:
    """The words behind `tflaunch run` start the program, with the program's own arguments."""
    container = the_container(build, overlay)
    words = [*container.get("command", []), *container["args"]]
    if "command" in container:  # without one the image's entry point is `tflaunch run`
        assert words[:3] == ["python3", "/opt/tflaunch/tflaunch.pyz", "run"]
        words = words[3:]
    for name in ("train.py", "serve.py"):  # as in the image's working directory
        (tmp_path / name).touch()
    printed = tflaunch("run", "--dry-run", *words, directory=tmp_path).splitlines()[-1].split()
    program = {"existing-image": ["python3", "/app/train.py", "--epochs", "10"], "serving": ["serve.py"]}
    assert printed[0] == "exec"
    assert printed[-len(program.get(overlay, ["train.py"])) :] == program.get(overlay, ["train.py"])


def test_serving_is_in_latency_mode(build: Build) -> None:
    words = the_container(build, "serving")["args"]
    options = words[words.index("--mode") : words.index("--mode") + 2]
    assert options == ["--mode", "latency"]


def test_whole_cpus_are_guaranteed_and_whole(build: Build) -> None:
    resources = the_container(build, "whole-cpus")["resources"]
    assert resources["requests"] == resources["limits"]
    assert isinstance(resources["limits"]["cpu"], int)


def test_the_quota_is_a_limit(build: Build) -> None:
    assert the_container(build, "quota")["resources"]["limits"]["cpu"] == "1500m"


def test_a_request_without_limit_reaches_tflaunch(build: Build) -> None:
    """With the variables as Kubernetes makes them: the request in thousandths, then put into a later variable."""
    container = the_container(build, "request")
    assert "cpu" not in container["resources"]["limits"]
    assert container["resources"]["requests"]["cpu"] == "1500m"

    made: dict[str, str] = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            source = variable["valueFrom"]["resourceFieldRef"]
            assert source == {"containerName": container["name"], "resource": "requests.cpu", "divisor": "1m"}
            made[variable["name"]] = "1500"
        else:
            value = variable["value"]
            for name, known in made.items():
                value = value.replace(f"$({name})", known)
            made[variable["name"]] = value
    assert made["TFLAUNCH_CPUS"] == "1500m"

    limit = json.loads(tflaunch("explain", "--json", TFLAUNCH_CPUS=made["TFLAUNCH_CPUS"]))["limit"]
    assert limit["cpus"] == min(1.5, len(os.sched_getaffinity(0)))
