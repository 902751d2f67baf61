"""The policy that injects tflaunch, evaluated on sample pods (see admission.py for what that leaves out)."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from k8s.admission import Policy
from k8s.manifests import MANIFESTS, Object, needed, pod_of

Build = Callable[[Path], list[Object]]

OVERLAY = MANIFESTS / "overlays" / "injection"
# The first Kubernetes with this policy in v1.
VERSION = "1.36"

WRAPPER = ["/opt/tflaunch/tflaunch.pyz", "run", "--no-python", "--"]


@pytest.fixture(scope="session")
def policy(build: Build) -> Policy:
    (manifest,) = (manifest for manifest in build(OVERLAY) if manifest["kind"] == "MutatingAdmissionPolicy")
    return Policy(manifest, VERSION)


def pod(*containers: Object, **spec: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sample"},
        "spec": {"containers": [*containers], **spec},
    }


def container(name: str, *command: str, **more: object) -> Object:
    given = {"command": [*command]} if command else {}
    return {"name": name, "image": f"registry.example/{name}:1.0", **given, **more}


def test_the_patch_is_a_list_of_json_patches(policy: Policy) -> None:
    """The type that the API server demands of the expression."""
    assert policy.patch.return_type().name() == "LIST<JSONPatch>"


def test_the_policy_makes_what_the_overlay_existing_image_has_by_hand(
    build: Build, policy: Policy, tmp_path: Path
) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "k8s")
    overlay = tmp_path / "k8s/overlays/existing-image"
    kustomization = overlay / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text().replace("  - path: tflaunch.yaml\n", ""))
    before, by_hand = (
        pod_of(manifest) for path in (overlay, MANIFESTS / "overlays/existing-image") for manifest in build(path)
    )
    assert before["spec"]["containers"][0]["command"] == ["python3", "/app/train.py"]
    assert in_order(policy.admit(before)) == in_order(by_hand)


def in_order(pod: Object) -> Object:
    """Volumes and their mounts are found by name: their order means nothing, and kustomize puts new ones first."""
    pod = copy.deepcopy(pod)
    pod["spec"]["volumes"].sort(key=lambda volume: volume["name"])
    for container in pod["spec"]["containers"]:
        container["volumeMounts"].sort(key=lambda mount: mount["mountPath"])
    return pod


PYTHONS = [
    pytest.param(["python", "train.py"], id="python"),
    pytest.param(["/usr/bin/python3.12", "-u", "-m", "trainer.task"], id="path and version"),
    pytest.param(["python3"], id="alone, the rest in args"),
]


@pytest.mark.parametrize("command", PYTHONS)
def test_a_python_command_is_wrapped_by_its_own_interpreter(policy: Policy, command: list[str]) -> None:
    admitted = policy.admit(pod(container("train", *command, args=["train.py", "--epochs", "1"])))
    (changed,) = admitted["spec"]["containers"]
    assert changed["command"] == [command[0], *WRAPPER, *command]
    assert changed["args"] == ["train.py", "--epochs", "1"]
    assert changed["volumeMounts"] == [{"name": "tflaunch", "mountPath": "/opt/tflaunch", "readOnly": True}]
    assert [volume["name"] for volume in admitted["spec"]["volumes"]] == ["tflaunch"]
    needed("kubernetes_validate").validate(admitted, VERSION, strict=True)


def test_what_the_pod_has_already_stays_and_tflaunch_comes_first(policy: Policy) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    before = pod(
        container("proxy", volumeMounts=[mount]),
        container("train", "python3", "train.py", volumeMounts=[mount], env=[{"name": "A", "value": "1"}]),
        container("helper", "python3", "-m", "http.server"),
        initContainers=[container("download", "python3", "download.py")],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    admitted = policy.admit(before)
    proxy, train, helper = admitted["spec"]["containers"]
    assert proxy == before["spec"]["containers"][0]
    assert train["volumeMounts"][0] == mount
    assert train["env"] == [{"name": "A", "value": "1"}]
    assert [train["command"][1:5], helper["command"][1:5]] == [WRAPPER, WRAPPER]
    first, second = admitted["spec"]["initContainers"]
    assert first["name"] == "tflaunch"
    assert second == before["spec"]["initContainers"][0]
    assert [volume["name"] for volume in admitted["spec"]["volumes"]] == ["data", "tflaunch"]
    needed("kubernetes_validate").validate(admitted, VERSION, strict=True)


def test_empty_lists_are_as_none(policy: Policy) -> None:
    admitted = policy.admit(pod(container("train", "python3", "a.py", volumeMounts=[]), initContainers=[], volumes=[]))
    assert len(admitted["spec"]["initContainers"]) == len(admitted["spec"]["volumes"]) == 1
    assert len(admitted["spec"]["containers"][0]["volumeMounts"]) == 1


LEFT_ALONE = [
    pytest.param(container("image", args=["train.py"]), id="the image's own entry point"),
    pytest.param(container("empty", command=[]), id="an empty command"),
    pytest.param(container("shell", "sh", "-c", "python3 train.py"), id="a shell"),
    pytest.param(container("server", "/usr/bin/tensorflow_model_server"), id="no Python"),
    pytest.param(container("ipython", "ipython3"), id="another name that ends in python"),
    pytest.param(container("config", "python3-config"), id="another name that begins with python"),
    pytest.param(container("done", "python3", "-m", "tflaunch", "run", "train.py"), id="tflaunch in the image"),
]


@pytest.mark.parametrize("left", LEFT_ALONE)
def test_other_containers_are_left_alone(policy: Policy, left: Object) -> None:
    before = pod(left)
    assert policy.admit(before) == before


def test_a_pod_is_changed_once(policy: Policy) -> None:
    once = policy.admit(pod(container("train", "python3", "train.py")))
    assert not policy.matches(once)


def test_the_sixteenth_container_is_the_last_that_is_looked_at(policy: Policy) -> None:
    admitted = policy.admit(pod(*(container(f"c{number}", "python3", "a.py") for number in range(17))))
    wrapped = [entry["command"][1:5] == WRAPPER for entry in admitted["spec"]["containers"]]
    assert wrapped == [True] * 16 + [False]


def test_a_field_that_kubernetes_does_not_have_is_refused(build: Build) -> None:
    """That the types of these tests are Kubernetes' own."""
    (manifest,) = (manifest for manifest in build(OVERLAY) if manifest["kind"] == "MutatingAdmissionPolicy")
    wrong = copy.deepcopy(manifest)
    patch = wrong["spec"]["mutations"][0]["jsonPatch"]
    patch["expression"] = patch["expression"].replace("sizeLimit:", "limit:")
    with pytest.raises(RuntimeError, match="undefined field 'limit'"):
        Policy(wrong, VERSION)


def test_the_binding_is_of_this_policy_and_asks_for_the_label(build: Build) -> None:
    by_kind = {manifest["kind"]: manifest for manifest in build(OVERLAY)}
    binding = by_kind["MutatingAdmissionPolicyBinding"]["spec"]
    assert binding["policyName"] == by_kind["MutatingAdmissionPolicy"]["metadata"]["name"]
    assert binding["matchResources"]["namespaceSelector"] == {"matchLabels": {"tflaunch.example/inject": "enabled"}}
