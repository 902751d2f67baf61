"""The view: when there is one, of how many CPUs, and what becomes of the variables."""

from __future__ import annotations

import os
import zipfile

import pytest

from tflaunch.decision import decide
from tflaunch.errors import TflaunchError
from tflaunch.files import Files
from tflaunch.machine import Machine
from tflaunch.options import Options, parse_options
from tflaunch.view import Library, View, find_library, make_view, make_view_environment

PATH = "/opt/tflaunch/libtflaunch_view.so"
NONE = View(None, frozenset(), None, "")
TWO = View(2, frozenset(), PATH, "of 8 allowed")


def machine(cores):
    cpus = frozenset().union(*cores)
    return Machine(cpus, cpus, tuple(frozenset(core) for core in cores))


def view(cores, options, library=None, environ=None):
    """What make_view says of the machine with these cores, with the plan's numbers for the options."""
    parsed = parse_options(options, {})
    facts = machine(cores)
    plan = decide(Files("/nonexistent"), parsed._replace(strict=False), {}).plan
    cpus = parsed.cpus.ceil() if parsed.cpus else len(facts.allowed)
    plan = plan._replace(python_cpu_count=plan.python_cpu_count._replace(value=cpus))
    return make_view(facts, plan, parsed, environ or {}, library or Library(PATH))


FOUR = [{0}, {1}, {2}, {3}]


class TestMakeView:
    """A view where the program would see more CPUs than it may use, and the reason where there is none."""

    @pytest.mark.parametrize(
        ("options", "cpus"),
        [
            ({}, None),
            ({"cpus": "4"}, None),
            ({"cpus": "3"}, 3),
            ({"cpus": "1"}, 1),
            ({"cpus": "0.5"}, 1),
            ({"cpus": "1.5"}, 2),
            ({"cpus": "1500m", "view": "on"}, 2),
            ({"cpus": "3.1"}, None),
            ({"cpus": "2", "view": "off"}, None),
            ({"view": "on"}, 4),
            ({"view": "off"}, None),
        ],
    )
    def test_cpus(self, options, cpus):
        found, problems = view(FOUR, options)
        assert (found.cpus, found.library, problems) == (cpus, None if cpus is None else PATH, ())

    @pytest.mark.parametrize(
        ("cores", "first"),
        [
            (FOUR, ()),
            ([{0, 1}, {2, 3}], (0, 2)),
            ([{0, 32}, {1, 33}, {7, 39}], (0, 1, 7)),
            ([{0, 1}, {2, 3}, {4}, {5}], (0, 2, 4, 5)),
        ],
    )
    def test_cores_come_before_siblings(self, cores, first):
        assert view(cores, {"cpus": "1"})[0].first == frozenset(first)

    def test_a_library_that_is_missing_is_told_where_it_would_help(self):
        missing = Library(None, "there is none")
        found, (problem,) = view(FOUR, {"cpus": "1"}, missing)
        assert (found.cpus, found.library) == (None, None)
        assert problem.code == "view_unavailable"
        assert "there is none" in problem.message
        assert "4 CPUs" in problem.message
        assert view(FOUR, {}, missing)[1] == ()
        assert view(FOUR, {"cpus": "1", "view": "off"}, missing)[1] == ()

    def test_the_number_of_cpus_of_the_host_that_stays_visible_is_told(self):
        """Under a cpuset sysconf and os.cpu_count() go on telling the host's number."""
        facts = machine([{0}])._replace(online=frozenset(range(64)))
        plan = decide(Files("/nonexistent"), Options(), {}).plan
        found, _ = make_view(facts, plan, Options(), {}, Library(PATH))
        assert found.cpus is None
        assert "64, stays visible (--view on hides it)" in found.reason
        assert make_view(facts, plan, Options(view="on"), {}, Library(PATH))[0].cpus == 1

    def test_an_outer_view_that_stands_is_told(self):
        found, _ = view(FOUR, {}, environ={"LD_PRELOAD": f"/a.so:{PATH}", "TFLAUNCH_VIEW_CPUS": "4"})
        assert (found.cpus, found.reason) == (None, "that of an outer tflaunch stands (TFLAUNCH_VIEW_CPUS=4)")

    def test_strict(self):
        missing = Library(None, "there is none")
        with pytest.raises(TflaunchError, match="not available: there is none"):
            view(FOUR, {"view": "on", "strict": "1"}, missing)
        assert view(FOUR, {"cpus": "1", "strict": "1"}, missing)[0].cpus is None

    def test_asked_for_it_is_told_in_any_case(self):
        _, (problem,) = view(FOUR, {"view": "on"}, Library(None, "there is none"))
        assert problem.message == "the view is not available: there is none"


def changes(view, environ, asked="auto"):
    """(action, value) of each variable of the view."""
    found = make_view_environment(view, environ, Options(view=asked))
    return {change.name: (change.action, change.value) for change in found}


class TestVariables:
    """The library stands before what the caller preloads, once, and what the caller preloads stays."""

    @pytest.mark.parametrize(
        ("preloaded", "value"),
        [
            ("libjemalloc.so.2", f"{PATH}:libjemalloc.so.2"),
            ("/a/one.so:/b/two.so", f"{PATH}:/a/one.so:/b/two.so"),
            ("/a/one.so /b/two.so", f"{PATH}:/a/one.so:/b/two.so"),
            (" : /a/one.so::", f"{PATH}:/a/one.so"),
            (f"/a/one.so:{PATH}", f"{PATH}:/a/one.so"),
            (f"/elsewhere/libtflaunch_view.so:/a/one.so:{PATH}", f"{PATH}:/a/one.so"),
            # The runtime of a sanitizer ends the program where it is not the first.
            ("/usr/lib/libasan.so.8:/a/one.so", f"/usr/lib/libasan.so.8:{PATH}:/a/one.so"),
            ("libclang_rt.asan-x86_64.so libubsan.so.1", f"libclang_rt.asan-x86_64.so:libubsan.so.1:{PATH}"),
            ("/a/one.so:libasan.so.8", f"{PATH}:/a/one.so:libasan.so.8"),
        ],
    )
    def test_preloaded(self, preloaded, value):
        found = changes(TWO, {"LD_PRELOAD": preloaded})
        assert found == {"LD_PRELOAD": ("replace", value), "TFLAUNCH_VIEW_CPUS": ("set", "2")}

    def test_nothing_preloaded(self):
        for environ in ({}, {"LD_PRELOAD": ""}):
            assert changes(TWO, environ)["LD_PRELOAD"][1] == PATH

    def test_within_another_tflaunch(self):
        environ = {"LD_PRELOAD": PATH, "TFLAUNCH_VIEW_CPUS": "4", "TFLAUNCH_VIEW_FIRST": "0-3"}
        assert changes(TWO, environ) == {
            "LD_PRELOAD": ("keep", PATH),
            "TFLAUNCH_VIEW_CPUS": ("replace", "2"),
            "TFLAUNCH_VIEW_FIRST": ("unset", None),
        }

    def test_first(self):
        found = changes(TWO._replace(first=frozenset({0, 2, 3, 4})), {"TFLAUNCH_VIEW_FIRST": "7"})
        assert found["TFLAUNCH_VIEW_FIRST"] == ("replace", "0,2-4")

    def test_no_view_changes_nothing(self):
        assert changes(NONE, {}) == {}
        assert changes(NONE, {"LD_PRELOAD": "libjemalloc.so.2"}, "off") == {}
        # What an outer tflaunch has set up goes on where this one has nothing to add.
        assert changes(NONE, {"LD_PRELOAD": PATH, "TFLAUNCH_VIEW_CPUS": "2"}) == {}

    def test_off_ends_an_outer_view(self):
        environ = {"LD_PRELOAD": f"{PATH}:libjemalloc.so.2", "TFLAUNCH_VIEW_CPUS": "2", "TFLAUNCH_VIEW_FIRST": "0"}
        assert changes(NONE, environ, "off") == {
            "LD_PRELOAD": ("replace", "libjemalloc.so.2"),
            "TFLAUNCH_VIEW_CPUS": ("unset", None),
            "TFLAUNCH_VIEW_FIRST": ("unset", None),
        }
        assert changes(NONE, {"LD_PRELOAD": PATH}, "off") == {"LD_PRELOAD": ("unset", None)}


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the library is for Linux")
class TestFindLibrary:
    """It is looked for beside the program's files, and what keeps the loader from using it is found before."""

    def test_beside_the_files(self, tmp_path):
        (tmp_path / "libtflaunch_view.so").touch()
        assert find_library(str(tmp_path)) == Library(str(tmp_path / "libtflaunch_view.so"))

    def test_beside_the_archive(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "tflaunch.pyz", "w") as archive:
            archive.writestr("tflaunch/__init__.py", "")
        (tmp_path / "libtflaunch_view.so").touch()
        found = find_library(str(tmp_path / "tflaunch.pyz" / "tflaunch"))
        assert found == Library(str(tmp_path / "libtflaunch_view.so"))

    def test_missing(self, tmp_path):
        found = find_library(str(tmp_path))
        assert found.path is None
        assert "installed without a C compiler" in found.problem

    @pytest.mark.parametrize("name", ["two words", "a:b", "$LIB"])
    def test_a_path_that_cannot_be_preloaded(self, tmp_path, name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libtflaunch_view.so").touch()
        found = find_library(str(tmp_path / name))
        assert found.path is None
        assert "LD_PRELOAD cannot name" in found.problem

    def test_a_directory_is_no_library(self, tmp_path):
        (tmp_path / "libtflaunch_view.so").mkdir()
        assert find_library(str(tmp_path)).path is None

    def test_unreadable(self, tmp_path, monkeypatch):
        """Root can read everything, so the kernel's answer is replaced."""
        (tmp_path / "libtflaunch_view.so").touch()
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert "cannot be read" in find_library(str(tmp_path)).problem

    def test_noexec(self, tmp_path, monkeypatch):
        """Such a mount needs root, so the kernel's answer is replaced."""
        (tmp_path / "libtflaunch_view.so").touch()
        real = os.statvfs(tmp_path)
        flags = [*real[:8], real.f_flag | os.ST_NOEXEC, real[9], real.f_fsid]
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(flags))
        assert "noexec" in find_library(str(tmp_path)).problem

    def test_other_systems(self, monkeypatch):
        monkeypatch.setattr("sys.platform", "darwin")
        assert "Linux" in find_library().problem
