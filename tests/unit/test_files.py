from __future__ import annotations

import contextlib
import os

import pytest

from tflaunch.files import MAX_BYTES, Files, Problem


@contextlib.contextmanager
def ordinary_user():
    """Permissions do not stop root, so the read is made as another user."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


class TestRead:
    """A file that can be read is text; one that does not exist is None and no problem."""

    def test_text_below_the_root(self, tree):
        assert tree({"/proc/self/cgroup": "0::/\n"}).read("/proc/self/cgroup") == "0::/\n"

    def test_this_machine(self):
        assert Files("/").read("/proc/self/stat").startswith(f"{os.getpid()} ")
        assert Files().is_this_machine

    def test_a_recorded_machine_is_not_this_one(self, tree):
        files = tree({})
        assert not files.is_this_machine
        assert files.read("/proc/self/stat") is None

    def test_empty(self, tree):
        files = tree({"/proc/cpuinfo": ""})
        assert files.read("/proc/cpuinfo") == ""
        assert files.problems() == ()

    @pytest.mark.parametrize("path", ["/proc/cpuinfo", "/proc/self/cgroup", "/proc/cpuinfo/below"])
    def test_missing(self, tree, path):
        files = tree({"/proc/version": "Linux\n"})
        assert files.read(path) is None
        assert files.problems() == ()

    def test_a_file_where_a_directory_should_be(self, tree):
        files = tree({"/proc/self": "no directory"})
        assert files.read("/proc/self/cgroup") is None
        assert files.problems() == ()

    def test_undecodable_bytes_stay_apart(self, tree):
        files = tree({"/proc/cpuinfo": b"model name : \xff\xfe\x80\n", "/proc/version": b"\xc3\xa4"})
        assert os.fsencode(files.read("/proc/cpuinfo")) == b"model name : \xff\xfe\x80\n"
        assert files.read("/proc/version") == "ä"

    def test_a_nul_that_a_recorder_left_behind_the_text(self, tree):
        assert tree({"/cpu.max": "max 100000\n\0"}).read("/cpu.max") == "max 100000\n"

    def test_a_file_longer_than_one_read(self, tree):
        text = "".join(f"{number} line\n" for number in range(40_000))
        assert tree({"/proc/self/mountinfo": text}).read("/proc/self/mountinfo") == text


class TestUnreadable:
    """A file that exists and cannot be read is reported with its path and the reason, and counts as missing."""

    def test_directory(self, tree):
        files = tree({"/sys/fs/cgroup/cpu.max/": ""})
        assert files.read("/sys/fs/cgroup/cpu.max") is None
        assert files.problems() == (Problem("unreadable_file", "ignored /sys/fs/cgroup/cpu.max: Is a directory"),)

    def test_permission(self, tree, tmp_path):
        files = tree({"/proc/self/cgroup": "0::/\n"})
        (tmp_path / "proc/self/cgroup").chmod(0)
        with ordinary_user():
            assert files.read("/proc/self/cgroup") is None
        assert files.problems() == (Problem("unreadable_file", "ignored /proc/self/cgroup: Permission denied"),)

    def test_links_in_a_circle(self, tree, tmp_path):
        files = tree({})
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        assert files.read("/a") is None
        assert [problem.code for problem in files.problems()] == ["unreadable_file"]

    def test_opened_but_not_read(self, tree, tmp_path):
        files = tree({})
        (tmp_path / "cpu.max").symlink_to("/proc/self/mem")  # reading its first byte is an input/output error
        assert files.read("/cpu.max") is None
        assert files.problems() == (Problem("unreadable_file", "ignored /cpu.max: Input/output error"),)

    def test_a_name_longer_than_any_file_system_takes(self, tree):
        files = tree({})
        assert files.read("/" + "x" * 5000) is None
        assert [problem.code for problem in files.problems()] == ["unreadable_file"]

    def test_a_path_that_cannot_be(self, tree):
        files = tree({})
        assert files.read("/sys/fs/a\0b/cpu.max") is None
        assert files.problems() == (
            Problem("malformed_file", r"ignored /sys/fs/a\x00b/cpu.max: no such path is possible"),
        )


@pytest.mark.usefixtures("deadline")
class TestNoOrdinaryFile:
    """Whatever stands in a file's place, a read comes back, and with no more than memory can hold."""

    def test_a_pipe_that_nobody_writes_to(self, tree, tmp_path):
        files = tree({})
        os.mkfifo(tmp_path / "cpu.max")
        assert not files.read("/cpu.max")

    def test_a_pipe_whose_writer_is_silent(self, tree, tmp_path):
        files = tree({})
        os.mkfifo(tmp_path / "cpu.max")
        writer = os.open(tmp_path / "cpu.max", os.O_RDWR)
        try:
            assert files.read("/cpu.max") is None
        finally:
            os.close(writer)
        assert [problem.code for problem in files.problems()] == ["unreadable_file"]

    def test_endless_nothing(self, tree, tmp_path):
        files = tree({})
        (tmp_path / "cpu.max").symlink_to("/dev/zero")
        assert files.read("/cpu.max") == ""

    def test_endless_noise(self, tree, tmp_path):
        files = tree({})
        (tmp_path / "cpu.max").symlink_to("/dev/urandom")
        assert MAX_BYTES / 8 < len(files.read("/cpu.max")) < 2 * MAX_BYTES

    def test_huge(self, tree, tmp_path):
        files = tree({"/sys/devices/system/cpu/online": "0-3\n"})
        os.truncate(tmp_path / "sys/devices/system/cpu/online", 2**36)
        assert files.read("/sys/devices/system/cpu/online") == "0-3\n"

    def test_descriptors_are_closed(self, tree):
        files = tree({"/a": "text", "/b/": ""})
        before = os.listdir("/proc/self/fd")
        for path in ("/a", "/b", "/c"):
            files.read(path)
        assert os.listdir("/proc/self/fd") == before


class TestNames:
    """What is in a directory, or nothing."""

    def test_names(self, tree):
        files = tree({"/sys/cpu/cpu0/online": "1", "/sys/cpu/online": "0"})
        assert sorted(files.names("/sys/cpu")) == ["cpu0", "online"]

    @pytest.mark.parametrize("path", ["/sys/none", "/sys/cpu/online", "/sys/cpu/online/below"])
    def test_no_directory(self, tree, path):
        files = tree({"/sys/cpu/online": "0"})
        assert files.names(path) == []
        assert files.problems() == ()

    def test_permission(self, tree, tmp_path):
        files = tree({"/sys/cpu/online": "0"})
        (tmp_path / "sys/cpu").chmod(0)
        with ordinary_user():
            assert files.names("/sys/cpu") == []
        assert files.problems() == (Problem("unreadable_file", "ignored /sys/cpu: Permission denied"),)


class TestProblems:
    """There is one problem of each kind, however many files have it."""

    def test_none(self, tree):
        assert tree({}).problems() == ()

    def test_the_first_file_and_how_many_more(self, tree):
        files = tree({f"/cpu{cpu}/": "" for cpu in range(300)})
        for cpu in range(300):
            files.read(f"/cpu{cpu}")
        assert files.problems() == (Problem("unreadable_file", "ignored /cpu0: Is a directory (and 299 more)"),)

    def test_one_for_each_kind(self, tree):
        files = tree({"/cpu.max/": "", "/online/": ""})
        files.read("/cpu.max")
        files.report("malformed_file", "/cpu.stat", "no numbers")
        files.read("/online")
        assert files.problems() == (
            Problem("unreadable_file", "ignored /cpu.max: Is a directory (and 1 more)"),
            Problem("malformed_file", "ignored /cpu.stat: no numbers"),
        )

    def test_a_hostile_name_does_not_reach_the_terminal(self, tree):
        files = tree({"/a\x1b[2J\n/": ""})
        files.read("/a\x1b[2J\n")
        assert files.problems()[0].message == r"ignored /a\x1b[2J\n: Is a directory"
