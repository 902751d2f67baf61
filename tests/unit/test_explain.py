"""`tflaunch explain` as a person sees it, in terminals of several widths, on several machines."""

from __future__ import annotations

import re
import sys

import pytest
from trees import cores, online, smt, sockets

from tflaunch.builds import Build
from tflaunch.main import main
from tflaunch.readers import Installed

NODES = "/sys/devices/system/node"


@pytest.fixture
def explain(tree, monkeypatch, capsys, view_library):
    """Runs `tflaunch explain --sysroot` on the files and gives the lines it prints."""
    view_library("/opt/tflaunch/libtflaunch_view.so")

    def run(files, *options, columns=80):
        for name in ("NO_COLOR", "FORCE_COLOR", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        # The same readers whatever is installed here.
        installed = Installed(frozenset({"numpy"}), Build("tensorflow-cpu", "2.21.0", (), ()))
        monkeypatch.setattr("tflaunch.render.find_installed", lambda: installed)
        monkeypatch.setattr(sys, "argv", ["tflaunch", "explain", "--sysroot", tree(files).root, *options])
        assert main() == 0
        return capsys.readouterr().out.split("\n")

    return run


def group(cpu_max, cpulist):
    """A process in the root group of a cgroup v2 namespace, with that quota and mask."""
    return {
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
        "/sys/fs/cgroup/cpu.max": f"{cpu_max}\n",
        "/proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t{cpulist}\n",
    }


LAPTOP = {**online("0-7"), **cores(*smt(4, 2)), **sockets("0-7"), **group("max 100000", "0-7")}
SERVER = {
    **online("0-63"),
    **cores(*smt(32, 2, split=True)),
    **sockets("0-15,32-47", "16-31,48-63"),
    f"{NODES}/node0/cpulist": "0-15,32-47\n",
    f"{NODES}/node1/cpulist": "16-31,48-63\n",
}
CONTAINER = {**SERVER, **group("200000 100000", "0-63")}
BIG = {**online("0-255"), **cores(*smt(256, 1)), **sockets("0-127", "128-255"), **group("max 100000", "64-255")}


class TestPicture:
    """A mark for each CPU the kernel has online, the allowed ones filled, those of one core together."""

    def test_laptop(self, explain):
        lines = explain(LAPTOP)
        row = next(index for index, line in enumerate(lines) if line.startswith("CPUs"))
        assert lines[row : row + 2] == [
            "CPUs         ■■ ■■ ■■ ■■",
            "             ■ allowed; a group is a core",
        ]

    def test_two_cpus_of_a_server(self, explain):
        """CPUs 3 and 35 are one core of node 0."""
        lines = explain({**SERVER, **group("max 100000", "3,35")})
        row = next(index for index, line in enumerate(lines) if line.startswith("CPUs"))
        assert lines[row : row + 3] == [
            "CPUs         node 0  ·· ·· ·· ■■" + " ··" * 12,
            "             node 1 " + " ··" * 16,
            "                     ■ allowed  · not allowed; a group is a core",
        ]

    def test_many_cpus_without_smt_stand_in_eights(self, explain):
        text = "\n".join(explain(BIG, columns=200))
        assert "socket 0  " + " ".join(["·" * 8] * 8 + ["■" * 8] * 8) + "\n" in text
        assert "socket 1  " + " ".join(["■" * 8] * 16) + "\n" in text

    def test_more_nodes_than_rows_are_of_use(self, explain):
        nodes = {f"{NODES}/node{node}/cpulist": f"{node}\n" for node in range(20)}
        text = "\n".join(explain({**online("0-19"), **cores(*smt(20, 1)), **nodes, **group("max 100000", "0-19")}))
        assert "■■■■■■■■ ■■■■■■■■ ■■■■\n" in text
        assert "node 0" not in text

    def test_a_terminal_without_the_marks(self, explain, monkeypatch):
        monkeypatch.setattr("rich.console.Console.encoding", "ascii")
        lines = explain({**SERVER, **group("max 100000", "3,35")})
        assert "CPUs         node 0  .. .. .. ##" + " .." * 12 in lines


class TestWidth:
    """No line is longer than the terminal, and nothing is cut off."""

    @pytest.mark.parametrize("columns", [60, 80, 200])
    @pytest.mark.parametrize("files", [LAPTOP, CONTAINER, BIG], ids=["laptop", "container", "big"])
    def test_fits(self, explain, files, columns):
        lines = explain(files, columns=columns)
        assert max(map(len, lines)) <= columns
        assert not any("…" in line for line in lines)
        assert not any(line.endswith(" ") for line in lines)

    def test_a_long_path_is_folded_not_lost(self, explain):
        path = "/" + "/".join(["slice"] * 40)
        files = {**LAPTOP, "/proc/self/cgroup": f"0::{path}\n", f"/sys/fs/cgroup{path}/cpu.max": "150000 100000\n"}
        lines = explain(files, columns=80)
        assert f"/sys/fs/cgroup{path}/cpu.max" in re.sub(r"\s+", "", "".join(lines))


class TestNumbers:
    """The limit with its file, each number with its reason, each variable with who reads it."""

    def test_container_with_two_cpus(self, explain):
        lines = explain(CONTAINER, columns=120)
        assert "Limit        2 CPUs: cgroup v2 quota, /sys/fs/cgroup/cpu.max: 200000 100000" in lines
        assert "Plan         intra-op          2  the quota of 2 CPUs" in lines
        assert any(line.startswith("Environment  set  TF_NUM_INTRAOP_THREADS=2") for line in lines)

    def test_what_no_variable_sizes_is_said_where_it_matters(self, explain):
        assert "Not sized    tf.data makes 64 threads" in "\n".join(explain(CONTAINER, "--view", "off"))
        assert "Not sized" not in "\n".join(explain(CONTAINER))
        assert "Not sized" not in "\n".join(explain(LAPTOP))

    def test_the_view_and_who_is_affected_by_it(self, explain):
        text = " ".join(" ".join(explain(CONTAINER)).split())
        assert "View 2 CPUs of 64 allowed; the limit of 2 CPUs as whole CPUs, rounded up seen by TensorFlow" in text
        assert "NumPy (OpenBLAS) not by static programs" in text
        laptop = " ".join(" ".join(explain(LAPTOP)).split())
        assert "View none: the affinity mask has no more CPUs than the plan" in laptop

    def test_binding(self, explain):
        one_node = {**SERVER, **group("max 100000", "16-31,48-63")}
        text = " ".join(" ".join(explain(one_node, "--bind", "cores", "--cpus", "2", columns=120)).split())
        assert "Binding to 16-17: the limit of 2 CPUs as whole CPUs, rounded up; 2 CPUs on 2 cores" in text
        assert "set OMP_PROC_BIND=false" in text
        laptop = " ".join(" ".join(explain(LAPTOP, "--bind", "cores")).split())
        assert "Binding nothing to bind: the plan uses all" in laptop
        assert "Not sized" not in text + laptop

    def test_why_there_is_no_view(self, explain, view_library):
        view_library(None, "there is no library")
        text = " ".join(" ".join(explain(CONTAINER)).split())
        assert "View none: not available: there is no library" in text
        assert "! the view is not available: there is no library; tf.data, XLA and others make pools for 64" in text

    def test_every_level_that_was_read(self, explain):
        files = {
            **LAPTOP,
            "/proc/self/cgroup": "0::/pod/app\n",
            "/sys/fs/cgroup/pod/app/cpu.max": "600000 100000\n",
            "/sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
        }
        text = "\n".join(explain(files, columns=120))
        assert "3 CPUs: cgroup v2 quota, /sys/fs/cgroup/pod/cpu.max: 300000 100000" in text
        assert "/sys/fs/cgroup/pod/app/cpu.max: 600000 100000 = 6 CPUs" in text

    def test_kinds(self, explain):
        files = {
            **LAPTOP,
            "/sys/devices/cpu_core/cpus": "0-3\n",
            "/sys/devices/cpu_atom/cpus": "4-7\n",
        }
        assert "4 performance CPUs (0-3), 4 efficiency CPUs (4-7)" in "\n".join(explain(files))

    def test_model_and_instruction_sets(self, explain):
        files = {**LAPTOP, "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Swift 9\nflags\t\t: fpu avx2 fma\n"}
        assert "Machine      Swift 9, AVX2, FMA" in explain(files)

    def test_exported_values(self, explain, monkeypatch):
        monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "5")
        monkeypatch.setenv("MKL_NUM_THREADS", "many")
        monkeypatch.setenv("OMP_PROC_BIND", "close")
        text = "\n".join(explain(LAPTOP, columns=200))
        assert re.search(r"keep +TF_NUM_INTEROP_THREADS=5 +exported; the plan would say 2 \(--override-env\)", text)
        assert re.search(r"replace +MKL_NUM_THREADS=4 .*was 'many', no valid value", text)
        assert re.search(r"keep +OMP_PROC_BIND=close +exported; tflaunch sets no binding", text)
        assert "!  MKL_NUM_THREADS was 'many'" in text
        assert re.search(
            r"unset +OMP_PROC_BIND +was 'close'", "\n".join(explain(LAPTOP, "--override-env", columns=200))
        )

    def test_files_that_could_not_be_used(self, explain):
        text = "\n".join(explain({**LAPTOP, "/sys/fs/cgroup/cpu.max": "lots\n"}, columns=200))
        assert "!  ignored /sys/fs/cgroup/cpu.max: lots: not a quota and a period" in text


class TestColour:
    """Colour only where it is wanted, and no escape that a file brought along."""

    def test_none_in_a_pipe(self, explain):
        assert "\x1b" not in "\n".join(explain(CONTAINER))

    def test_forced(self, explain, monkeypatch, tree, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(sys, "argv", ["tflaunch", "explain", "--sysroot", tree(CONTAINER).root])
        assert main() == 0
        assert "\x1b[32m■" in capsys.readouterr().out

    @pytest.mark.parametrize("hostile", ["\x1b[31mred", "a\rb", "\x9b31m", "\u202eevil"])
    def test_untrusted_text(self, explain, monkeypatch, hostile):
        monkeypatch.setenv("OMP_PLACES", hostile)
        text = "\n".join(explain({**LAPTOP, "/proc/cpuinfo": f"processor : 0\nmodel name : {hostile}\n"}))
        assert hostile not in text
        assert not set("\x1b\x9b\r\u202e") & set(text)
