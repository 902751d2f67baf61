"""The files of docker/ and k8s/ in real containers: images built as they say, pods played as they stand."""

from __future__ import annotations

import ast
import fcntl
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from k8s.manifests import INSTALL, MANIFESTS, needed, pod_of
from missing import environment, missing
from system.podman import ROOT, SECONDS, Container, podman, running

# pip unpacks TensorFlow, with other tests beside it.
BUILD_SECONDS = 1800
ALLOWED = len(os.sched_getaffinity(0))

# Says what it was given, and ends by SIGTERM, which a first process without a handler would ignore.
FACTS = """\
import json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print(json.dumps({"environ": dict(os.environ), "arguments": sys.argv, "user": os.getuid()}), flush=True)
signal.sigwait({signal.SIGTERM})
"""

SEEN = """
import json, os
(mask,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("Cpus_allowed_list"))
print(json.dumps([os.getuid(), mask, len(os.sched_getaffinity(0)), os.cpu_count()]))
"""


def program(name: str) -> str:
    """A program of the environment that runs the tests."""
    return shutil.which(name, path=os.path.dirname(sys.executable)) or missing(f"{name} is missing: {INSTALL}")


@contextmanager
def one_at_a_time():
    """Another worker's build of the same image waits, and then finds it in the cache."""
    with (environment("podman") / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def pip_options(tmp_path_factory):
    """This machine's settings of pip as options of `podman build`: a secret, and the files that they name."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    lines = re.findall(r"^(global|install|:env:)\.(\S+?)=(.*)$", done.stdout, re.MULTILINE)
    # A variable counts more than a file.
    lines.sort(key=lambda line: line[0] == ":env:")
    settings = {name: ast.literal_eval(value).split() for _, name, value in lines}
    file = tmp_path_factory.mktemp("pip") / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{name} = {' '.join(words)}\n" for name, words in settings.items()))
    places = set()
    for word in (word for words in settings.values() for word in words):
        # The pages of an index may name files beside its directory.
        place = Path(word[len("file://") :]).parent if word.startswith("file://") else Path(word)
        if place.is_absolute() and place.exists():
            places.add(str(place))
    volumes = [f"--volume={place}:{place}:ro" for place in sorted(places)]
    return ["--network=host", f"--secret=id=pip.conf,src={file}", *volumes]


@pytest.fixture(scope="session")
def build():
    """Build an image by a name that no other worker uses; removed after the tests.

    The layers below it stay as a cache, for as long as the environment; with --layers=false there are none.
    """
    built = []

    def run(name, *arguments):
        image = f"localhost/tflaunch-test-{name}-{os.getpid()}"
        built.append(image)
        with one_at_a_time():
            podman("build", "--quiet", f"--tag={image}", *arguments, timeout=BUILD_SECONDS)
        return image

    yield run
    for image in reversed(built):
        podman("rmi", "--no-prune", image, check=False)


@pytest.fixture(scope="session")
def image(build, pip_options):
    """docker/Dockerfile."""
    bases = [f"--build-arg={name}=localhost/tflaunch-base" for name in ("BASE_IMAGE", "BUILD_IMAGE")]
    files = [f"--file={ROOT / 'docker' / 'Dockerfile'}", f"--ignorefile={ROOT / 'docker' / 'Dockerfile.dockerignore'}"]
    return build("example", *bases, *pip_options, *files, str(ROOT))


@pytest.fixture(scope="session")
def facts(build, image, tmp_path_factory):
    """The same image with programs that say what they were given, which takes less time than a training."""
    directory = tmp_path_factory.mktemp("facts")
    (directory / "facts.py").write_text(FACTS)
    (directory / "Dockerfile").write_text(f"FROM {image}\nCOPY facts.py train.py\nCOPY facts.py serve.py\n")
    return build("facts", "--layers=false", str(directory))


@pytest.fixture(scope="session")
def single_file(tmp_path_factory):
    """The directory with tflaunch.pyz and the library of the view."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, str(ROOT / "make_pyz.py"), str(directory)], check=True, capture_output=True)
    return directory


@pytest.fixture
def name(request):
    """A name for a container or a pod of this test."""
    return f"tflaunch-test-{os.getpid()}-{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower()).strip('-')}"


def assert_trained(done, cpus: str, threads: int):
    """The example came to its end, in pools of this size."""
    assert done.returncode == 0, done.stderr
    (accuracy,) = re.findall(r"^test accuracy: (\S+)$", done.stdout, re.MULTILINE)
    assert 0.9 < float(accuracy) <= 1
    settings = dict(re.findall(r"^  (\S.*\S)  +(\S+)$", done.stdout, re.MULTILINE))
    assert settings["TF_NUM_INTRAOP_THREADS"] == settings["OMP_NUM_THREADS"] == str(threads)
    assert settings["TF_NUM_INTEROP_THREADS"] == "2"
    said = [line for line in done.stderr.splitlines() if line.startswith("tflaunch: ")]
    assert len(said) == 1 or (len(said) == 2 and "SIGTERM" in said[0]), done.stderr
    assert said[-1].startswith(f"tflaunch: {cpus} (cgroup v")
    assert f"intra-op {threads}, inter-op 2, OMP {threads}" in said[-1]


class TestImage:
    LOCKED = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=12345:12345")

    def test_the_example(self, image, name, two_cores):
        with running(*self.LOCKED, "--init", "--cpus=1.5", image, name=name) as container:
            assert container.quotas()[0] == 1.5
            done = container.end()
        assert_trained(done, "1.5 CPUs", 2)

    def test_explain_without_rights(self, image, name, two_cores):
        """Another user, no capabilities, no file that can be written."""
        with running(*self.LOCKED, "--cpus=1.5", "--entrypoint=sleep", image, "infinity", name=name) as container:
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{container.pid}/status").read_text().splitlines()
            )
            done = container.run("tflaunch", "explain", "--json")
            assert container.quotas()[0] == 1.5
        assert status["Uid"].split() == ["12345"] * 4
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        document = json.loads(done.stdout)
        assert (document["limit"]["quota_cpus"], document["warnings"]) == (1.5, [])
        assert document["machine"]["allowed_cpus"] == status["Cpus_allowed_list"]

    def test_the_view(self, image, name, two_cores):
        with running(*self.LOCKED, "--cpus=1", image, "--no-python", "python3", "-c", SEEN, name=name) as container:
            done = container.end()
        assert done.returncode == 0, done.stderr
        user, mask, seen, count = json.loads(done.stdout)
        assert user == 12345
        assert not mask.isdigit(), "the kernel's mask should have more than one CPU"
        assert (seen, count) == (1, 1)
        assert f"sees 1 of {ALLOWED} CPUs" in done.stderr

    def test_signals_with_init(self, facts, name):
        """docker stop ends the program by SIGTERM, not by SIGKILL after the time that it waits."""
        with running(*self.LOCKED, facts, "--init", "train.py", name=name) as container:
            facts_of(container)
            podman("stop", "--time=60", name)
            assert container.end().returncode == 0

    def test_added_to_an_image(self, build, image, single_file, name, two_cores):
        """docker/Dockerfile.addon, on the example's image in place of a stock one."""
        dockerfile = ROOT / "docker" / "Dockerfile.addon"
        addon = build("addon", "--layers=false", f"--from={image}", f"--file={dockerfile}", str(single_file))
        with running(*self.LOCKED, "--cpus=1", addon, "/app/train.py", name=name) as container:
            done = container.end()
        assert_trained(done, "1 CPU", 1)
        assert re.search(r"^  CPUs this process may use +1$", done.stdout, re.MULTILINE)


def test_compose(image, name, two_cores):
    """docker/compose.yaml, with the image as it was built above."""
    wanted = "localhost/tflaunch-example"
    command = [program("podman-compose"), f"--podman-path={environment('podman') / 'podman'}"]
    command += [f"--file={ROOT / 'docker' / 'compose.yaml'}", f"--project-name={name}"]
    podman("tag", image, wanted)
    try:
        subprocess.run([*command, "up", "--detach", "--no-build"], check=True, capture_output=True, timeout=SECONDS)
        (container,) = podman(
            "ps", "--all", "--format={{.Names}}", f"--filter=label=io.podman.compose.project={name}"
        ).stdout.split()
        container = Container(container)
        assert container.quotas()[0] == 1.5
        done = container.end()
    finally:
        subprocess.run([*command, "down", "--timeout=0"], check=False, capture_output=True, timeout=SECONDS)
        podman("untag", wanted, wanted, check=False)  # that name only
    assert_trained(done, "1.5 CPUs", 2)


def facts_of(container):
    """What the program in a container says, as soon as it says it."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        logs = podman("logs", container.name)
        if "\n" in logs.stdout:
            return json.loads(logs.stdout), logs.stderr
        state = podman("inspect", "--format={{.State.Status}}", container.name).stdout.strip()
        assert state in ("created", "running"), f"{state}: {podman('logs', container.name)}"
    raise AssertionError("the container says nothing")


def pod_from(overlay: str, name: str, image: str) -> dict:
    """The pod of a directory of k8s/, as podman can play it: with this image, and without a network."""
    yaml = needed("yaml")
    command = [program("kubectl"), "kustomize", str(MANIFESTS / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    (pod,) = filter(None, map(pod_of, yaml.safe_load_all(done.stdout)))
    pod["metadata"]["name"] = name
    pod["spec"]["hostNetwork"] = True
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
        container.update(image=image, imagePullPolicy="Never")
        container.pop("ports", None)  # the host's network needs none, and podman refuses them there
    return pod


@contextmanager
def played(pod, tmp_path):
    """The pod's container of TensorFlow. The files that the pod wrote are removed with it."""
    name = pod["metadata"]["name"]
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(pod))
    volumes = [f"{name}-{volume['name']}" for volume in pod["spec"].get("volumes", [])]
    try:
        podman("kube", "play", str(file))
        yield Container(f"{name}-tensorflow")
    finally:
        podman("pod", "rm", "--force", "--time=0", name, check=False)
        for volume in volumes:
            podman("volume", "rm", "--force", volume, check=False)


# What each directory with a pod gives it: the quota, and the intra-op threads on two cores. One has no pod:
# overlays/injection changes pods that others make, in the API server, to what overlays/existing-image is.
PODS = {
    "base": (None, 2),
    "overlays/quota": (1.5, 2),
    "overlays/whole-cpus": (4, 2),
    "overlays/request": (None, 2),
    "overlays/serving": (2, 1),
    "overlays/tfjob": (4, 2),
}
ELSEWHERE = {"overlays/existing-image", "overlays/injection"}


class TestPods:
    def test_all_are_here(self):
        overlays = {f"overlays/{path.name}" for path in (MANIFESTS / "overlays").iterdir()}
        assert PODS.keys() | ELSEWHERE == overlays | {"base"}

    @pytest.mark.parametrize("overlay", PODS)
    def test_pod(self, facts, name, tmp_path, two_cores, overlay):
        quota, threads = PODS[overlay]
        pod = pod_from(overlay, name, facts)
        if overlay == "overlays/request":
            # The kubelet puts a variable that stands above into a later one, podman does not.
            pod["spec"]["containers"][0]["env"][-1] = {"name": "TFLAUNCH_CPUS", "value": "1500m"}
        with played(pod, tmp_path) as container:
            said, stderr = facts_of(container)
            assert container.quotas()[0] == quota
            podman("stop", "--time=60", container.name)
            status = podman("inspect", "--format={{.State.ExitCode}}", container.name).stdout.strip()
        environ = said["environ"]
        cpus = min(quota or ALLOWED, ALLOWED)
        if overlay == "overlays/request":
            cpus = 1.5
            assert environ["REQUESTED_MILLICPUS"] == "1500"
            assert "1.5 CPUs (TFLAUNCH_CPUS=1500m)" in stderr
        elif quota is not None and quota < ALLOWED:
            assert f"{quota:g} CPUs (cgroup v" in stderr
        assert environ["PYTHON_CPU_COUNT"] == str(math.ceil(cpus))
        if cpus <= 2:
            assert environ["TF_NUM_INTRAOP_THREADS"] == environ["OMP_NUM_THREADS"] == str(threads)
        assert environ["TF_NUM_INTEROP_THREADS"] == ("1" if overlay == "overlays/serving" else "2")
        assert said["user"] == 65532
        assert Path(said["arguments"][0]).name == ("serve.py" if overlay == "overlays/serving" else "train.py")
        assert status == "0"

    def test_the_request_in_whole_cpus(self, facts, name, tmp_path, two_cores):
        """The README's form, without arithmetic: the downward API rounds 1500m up to 2."""
        pod = pod_from("overlays/request", name, facts)
        reference = {"resourceFieldRef": {"containerName": "tensorflow", "resource": "requests.cpu", "divisor": "1"}}
        pod["spec"]["containers"][0]["env"] = [{"name": "TFLAUNCH_CPUS", "valueFrom": reference}]
        with played(pod, tmp_path) as container:
            said, stderr = facts_of(container)
        assert said["environ"]["TFLAUNCH_CPUS"] == "2"
        assert "2 CPUs (TFLAUNCH_CPUS=2)" in stderr

    def test_existing_image(self, build, image, single_file, name, tmp_path, two_cores):
        """The init container brings tflaunch into an image that stays as it is, and its training runs under it."""
        dockerfile = tmp_path / "Dockerfile"
        copy = "COPY tflaunch.pyz libtflaunch_view.so /tflaunch/"
        dockerfile.write_text(f"FROM localhost/tflaunch-base\n{copy}\nUSER 65532\n")
        files = build("files", "--layers=false", f"--file={dockerfile}", str(single_file))
        pod = pod_from("overlays/existing-image", name, image)
        pod["spec"]["initContainers"][0]["image"] = files
        with played(pod, tmp_path) as container:
            assert container.quotas()[0] == 1.5
            done = container.end()
        assert_trained(done, "1.5 CPUs", 2)
        assert "Epoch 10/10" in done.stdout
