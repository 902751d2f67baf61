"""The library of the view beside the truth: which answers differ with it, and that nothing else does.

The right answers come from a run of the same program without the library, from the kernel's own files, and from the few
lines of `told`.
"""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.constants import P_FLAGS
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from missing import missing

from .conftest import ROOT, SECONDS, cpulist, numbers, told

UNTOUCHED = 4242  # errno before each question of the programs
GUARD = "a5" * 16
COUNTS = ("get_nprocs", "get_nprocs_conf", "_SC_NPROCESSORS_ONLN", "_SC_NPROCESSORS_CONF")
SIZES = (8, 64, 65, 128, 1000, 1024, 8192)
INTERPOSED = {
    "sched_getaffinity", "pthread_getaffinity_np", "sched_setaffinity", "pthread_setaffinity_np",
    "pthread_attr_setaffinity_np", "get_nprocs", "get_nprocs_conf", "sysconf", "sched_getcpu", "getcpu",
}  # fmt: skip


def answers(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[int, int, str]]:
    """Question -> result, errno, bytes of the buffer."""
    assert (done.returncode, done.stderr) == (0, "")
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {question: (int(result), int(error), data) for question, result, error, data in lines}


def decode(data: str, question: str) -> bytes:
    """The mask between the guards, which must be as they were."""
    offset = int(question.rsplit(" ", 1)[1])
    assert data.startswith(GUARD + "a5" * offset)
    assert data.endswith(GUARD)
    return bytes.fromhex(data[len(GUARD) + 2 * offset : -len(GUARD)])


def mask_of(cpus: set[int], question: str) -> bytes:
    """The mask as the kernel writes it: words of the machine, in a buffer as large as that of the question."""
    buffer = bytearray(int(question.split(" ")[2]))
    for cpu in cpus:
        byte = cpu // 8 if sys.byteorder == "little" else cpu // 8 ^ 7
        buffer[byte] |= 1 << cpu % 8
    return bytes(buffer)


def shown(done: subprocess.CompletedProcess[str]) -> list[tuple[str, list[set[int]]]]:
    """Who -> the masks by each way of asking; where there is one, the kernel's own word is the last."""
    assert (done.returncode, done.stderr) == (0, "")
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return [(who, [numbers(mask) for mask in masks]) for who, *masks in lines]


@pytest.fixture(scope="module")
def probe(native):
    return native.compile("probe.c")


@pytest.fixture(scope="module")
def setting(native):
    return native.compile("setting.c", "-pthread")


@pytest.fixture(scope="module")
def storm(native):
    """Aborts where memory, the environment or a symbol is asked for."""
    return native.compile("storm.c", "-pthread", "-O2", "-rdynamic", "-DFORBID")


@pytest.fixture(scope="module")
def plain_storm(native):
    return native.compile("storm.c", "-pthread")


@st.composite
def machines(draw):
    size = draw(st.sampled_from(SIZES))
    cpus = st.integers(0, size - 1)
    mask = draw(st.one_of(st.just(set(range(size))), st.sets(cpus, min_size=1, max_size=100)))
    count = draw(st.one_of(st.integers(1, len(mask) + 1), st.integers(1, size)))
    halves = (set(range(0, size, 2)), {cpu for cpu in mask if cpu % 4 < 2})
    first = draw(st.one_of(st.none(), st.sets(cpus, max_size=50), st.sampled_from(halves)))
    return size, mask, count, first


class TestMasksAndCounts:
    """A subset of the true mask, of so many CPUs, in buffers of every size; all else as without the library."""

    @given(machine=machines())
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_mask(self, native, probe, machine):
        size, mask, count, first = machine
        needed = (size + 63) // 64 * 8
        buffers = sorted({8, needed - 8, needed, needed + 8, 128, 1024} - {0})
        arguments = ("counts", *buffers)
        without = answers(native.run(probe, *arguments, mask=mask, size=size))
        listed = None if first is None else cpulist(first)
        seen = answers(native.run(probe, *arguments, mask=mask, size=size, count=count, first=listed))
        expected = told(mask, count, first or ())
        assert seen.keys() == without.keys()
        clipped = 0
        for question, (result, error, data) in without.items():
            if question in COUNTS:
                assert seen[question] == (min(size, count), UNTOUCHED, "")
            elif question in ("sched_getcpu", "getcpu cpu"):
                assert 0 <= seen[question][0] < min(size, count)
            elif "affinity" in question and result == 0:
                assert decode(data, question) == mask_of(mask, question)
                assert seen[question][:2] == (0, UNTOUCHED) == (result, error)
                assert decode(seen[question][2], question) == mask_of(expected, question)
                clipped += 1
            else:
                assert seen[question] == (result, error, data)
        # Four ways of asking in two places, with each buffer that is large enough.
        assert clipped == 8 * sum(buffer >= needed for buffer in buffers)

    @pytest.mark.parametrize("size", SIZES)
    def test_the_machine_of_the_benchmarks(self, native, probe, size):
        machine = native.compile(ROOT / "bench/many_cpus.c", "-shared", "-fPIC", f"-DCPUS={size}", "-ldl")
        for count in (1, size // 2, size, size + 1):
            preload = (native.library, machine)
            seen = answers(native.run(probe, "counts", 1024, count=count, preload=preload))
            assert {question: seen[question][0] for question in COUNTS} == dict.fromkeys(COUNTS, min(count, size))
            question = "pthread_getaffinity_np 0 1024 0"
            assert decode(seen[question][2], question) == mask_of(set(range(min(count, size))), question)

    def test_this_machine(self, native, probe, two_cpus):
        without = answers(native.run(probe, "counts", 1024))
        seen = answers(native.run(probe, "counts", 1024, count=1))
        assert {question: seen[question][0] for question in COUNTS} == dict.fromkeys(COUNTS, 1)
        question = "sched_getaffinity 1 1024 0"
        assert decode(without[question][2], question) == mask_of(os.sched_getaffinity(0), question)
        assert decode(seen[question][2], question) == mask_of(told(os.sched_getaffinity(0), 1), question)

    def test_errors_are_those_without_the_library(self, native, probe):
        without = answers(native.run(probe, "errors", preload=()))
        assert answers(native.run(probe, "errors", count=1)) == without
        for question, expected in (
            ("size 0", (-1, errno.EINVAL)),
            ("size 12", (-1, errno.EINVAL)),
            ("pthread size 0", (errno.EINVAL, UNTOUCHED)),
            ("no such thread", (-1, errno.ESRCH)),
            ("nowhere", (-1, errno.EFAULT)),
            ("pthread nowhere", (errno.EFAULT, UNTOUCHED)),
            ("set nowhere", (-1, errno.EFAULT)),
            ("set none", (-1, errno.EINVAL)),
            ("set no such thread", (-1, errno.ESRCH)),
        ):
            assert without[question][:2] == expected, question

    def test_a_processor_number_is_below_the_count(self, native, plain_storm):
        """Programs take the entry of the CPU they run on, of an array with as many entries as there are CPUs."""
        for count in (1, 2, 7):
            done = native.run(plain_storm, count, "threads", 8, 200, mask=range(8000, 8192), count=count)
            assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")


class TestVariables:
    """They are read while the library is loaded; what is no number is none."""

    @pytest.mark.parametrize(
        "value",
        [
            "", "0", "00", "-1", "1x", "x1", " 2", "2 ", "2\n", "+2", "0x2", "2.0", "2,3", "65537", "2147483648",
            "4294967298", "18446744073709551618", "9" * 20, "9" * 5000, "\udcff", "٢",
        ],
    )  # fmt: skip
    def test_a_bad_count_is_no_view(self, native, probe, value):
        without = answers(native.run(probe, "counts", 8, 128, mask=range(100)))
        assert answers(native.run(probe, "counts", 8, 128, mask=range(100), count=value, first="0-9")) == without

    @pytest.mark.parametrize(("value", "count"), [("2", 2), ("002", 2), ("99", 99), ("65536", 100)])
    def test_a_good_count(self, native, probe, value, count):
        seen = answers(native.run(probe, "counts", mask=range(100), count=value))
        assert seen["get_nprocs"][0] == count

    @pytest.mark.parametrize(
        ("text", "first"),
        [
            ("", set()),
            ("8", {8}),
            ("6-8", {6, 7, 8}),
            ("9,7", {7, 9}),
            ("6,x,8", {6}),
            ("6x,8", {6}),
            ("6,,8", {6}),
            (" 6", set()),
            ("6 ,8", {6}),
            ("6-,8", set()),
            ("6-x,8", set()),
            ("8-6,5", set()),
            ("-6", set()),
            ("6-7-8", {6, 7}),
            ("6,65536", {6}),
            ("6,65535,7", {6, 7}),
            ("6-65535", {6, 7, 8, 9}),
            ("6-65536", set()),
            ("6," + "9" * 30 + ",7", {6}),
            ("6-" + "9" * 30 + ",7", set()),
            ("6," * 20000 + "8", {6, 8}),
            ("6,\udcff,8", {6}),
        ],
    )
    def test_a_list_is_used_up_to_where_it_is_malformed(self, native, probe, text, first):
        seen = answers(native.run(probe, 128, mask=range(10), count=3, first=text))
        question = "sched_getaffinity 0 128 0"
        assert decode(seen[question][2], question) == mask_of(told(set(range(10)), 3, first), question)

    def test_they_are_read_once(self, native, probe):
        seen = answers(native.run(probe, "setenv=5", "counts", mask=range(100), count=2))
        assert seen["get_nprocs"][0] == 2
        seen = answers(native.run(probe, "setenv=5", "counts", mask=range(100)))
        assert seen["get_nprocs"][0] == 100

    def test_libraries_that_ask_before_it_is_ready_are_told_the_same(self, native):
        library = native.compile("early.c", "-shared", "-fPIC")
        program = native.compile("early.c", "-DPROGRAM", library)
        done = native.run(program, mask=range(100), count=2)
        assert (done.stdout, done.stderr) == ("constructor 2 2 2\nmain 2 2 2\n", "")

    def test_loaded_later_it_changes_nothing_for_the_program(self, native, two_cpus):
        code = (
            "import ctypes, os, sys; library = ctypes.CDLL(sys.argv[1]); mask = ctypes.create_string_buffer(128);"
            "print(os.cpu_count() > 1, library.get_nprocs(), library.sched_getaffinity(0, 128, mask),"
            " sum(byte.bit_count() for byte in mask.raw))"
        )
        done = native.run(sys.executable, "-c", code, native.library, count=1, preload=())
        assert (done.stdout, done.stderr) == ("True 1 0 1\n", "")


class TestSetting:
    """What a program sets itself is done, and told truly from then on."""

    @pytest.mark.parametrize("way", ["sched", "pthread", "attribute"])
    @pytest.mark.parametrize("which", [(0, 1), (1,)], ids=["more than the view", "second"])
    def test_it_is_read_back(self, native, setting, two_cpus, way, which):
        wanted = {two_cpus[index] for index in which}
        lines = shown(native.run(setting, way, cpulist(wanted).replace("-", ","), count=1))
        assert [who for who, _ in lines] == ["self", "thread", "fork", "exec"]
        for who, (*masks, by_kernel) in lines:
            assert by_kernel == wanted
            # A program that is started in it sees the view again.
            assert masks == [told(wanted, 1) if who == "exec" else wanted] * 3, who

    def test_for_another_thread(self, native, setting, two_cpus):
        allowed = os.sched_getaffinity(0)
        before, other, *_ = shown(native.run(setting, "thread", two_cpus[1], count=1))
        assert before == ("before", [told(allowed, 1), told(allowed, 1), allowed])
        assert other == ("other", [{two_cpus[1]}] * 3)

    def test_one_mask_after_the_other(self, native, two_cpus):
        """By the library's word and the kernel's, also where a mask is set twice."""
        masks = [[two_cpus[1]], [two_cpus[1]], two_cpus, [two_cpus[0]], [two_cpus[1]]]
        program = (
            "import os\n"
            f"for mask in {masks}:\n"
            "    os.sched_setaffinity(0, mask)\n"
            "    status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
            "    print(sorted(os.sched_getaffinity(0)), status['Cpus_allowed_list'].strip())\n"
        )
        done = native.run(sys.executable, "-c", program, count=1)
        assert done.stdout.splitlines() == [f"{sorted(mask)} {cpulist(set(mask))}" for mask in masks]

    @pytest.mark.parametrize("way", ["sched", "pthread"])
    @given(data=st.data())
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_mask(self, native, setting, way, data):
        size, mask, count, _ = data.draw(machines())
        wanted = data.draw(st.sets(st.integers(0, size - 1), max_size=100)) | {min(mask)}
        listed = ",".join(map(str, wanted))
        lines = dict(shown(native.run(setting, way, listed, mask=mask, size=size, count=count)))
        for who in ("self", "thread", "fork"):
            assert lines[who][:3] == [wanted & mask] * 3
        assert lines["exec"][:3] == [told(mask, count)] * 3

    @pytest.mark.parametrize("way", ["sched", "pthread", "attribute"])
    def test_all_that_it_was_told_means_all(self, native, setting, two_cpus, way):
        """Asked and set again, by one that was not elsewhere; a program then started is no exception."""
        allowed = os.sched_getaffinity(0)
        lines = shown(native.run(setting, way, two_cpus[0], count=1))
        assert lines == [(who, [*[told(allowed, 1)] * 3, allowed]) for who in ("self", "thread", "fork", "exec")]

    def test_who_only_looks_at_each_cpu_is_not_pinned(self, native, setting, two_cpus):
        """hwloc goes to each CPU and puts back what it was told; other threads run where they did."""
        allowed = os.sched_getaffinity(0)
        for looked_at in ([two_cpus[1]], two_cpus):
            lines = shown(native.run(setting, "look", ",".join(map(str, looked_at)), count=1))
            places = [(who, masks) for who, masks in lines if who.startswith("at ")]
            assert places == [(f"at {cpu}", [{cpu}]) for cpu in looked_at] * 2
            family = [(who, masks) for who, masks in lines if not who.startswith("at ")]
            assert [who for who, _ in family] == ["self", "thread", "fork", "exec"] * 2
            for _, (*masks, by_kernel) in family:
                assert masks == [told(allowed, 1)] * 3
                assert by_kernel == allowed

    @pytest.mark.parametrize(("looked_at", "sizes"), [("5,6", [1, 1, 1, 10]), ("6,0,5", [1, 1, 10, 1, 1, 10])])
    def test_it_has_been_where_it_looked(self, native, setting, looked_at, sizes):
        """Also where the CPU to look at is all that it was told: it is set to that one, and then to all."""
        done = native.run(setting, "look", looked_at, mask=range(10), count=1, MACHINE_LOG="1")
        assert done.stderr.splitlines() == [f"set to {size} CPUs" for size in sizes] * 2
        lines = [line.split("\t")[:4] for line in done.stdout.splitlines()]
        family = [line for line in lines if line[0] in ("self", "thread", "fork")]
        assert family == [[who, "0", "0", "0"] for who in ("self", "thread", "fork")] * 2

    def test_for_another_process_changes_no_answer(self, native, setting, two_cpus):
        allowed = os.sched_getaffinity(0)
        lines = dict(shown(native.run(setting, "child", ",".join(map(str, sorted(allowed))), count=1)))
        assert lines["self"] == [*[told(allowed, 1)] * 3, allowed]
        assert lines["child"] == [allowed]

    def test_the_truth_is_told_of_other_processes(self, native, two_cpus):
        allowed = os.sched_getaffinity(0)
        done = native.run("taskset", "-cp", os.getpid(), count=1)
        assert numbers(done.stdout.rsplit(" ", 1)[1]) == allowed
        done = native.run("sh", "-c", "exec taskset -cp $$", count=1)
        assert numbers(done.stdout.rsplit(" ", 1)[1]) == told(allowed, 1)

    def test_masks_that_others_change(self, native, setting):
        """A mask that the program had set itself is told truly whenever it holds; others are clipped."""
        lists = ("4,5,6,7", "0,1,2,3", "1,2", "6", "68,69,70,71", "4,5,6,7")
        lines = shown(native.run(setting, "outside", *lists, mask=range(100), count=2))
        told_masks = [masks[:3] for _, masks in lines]
        assert told_masks == [[mask] * 3 for mask in ({4, 5, 6, 7}, {0, 1}, {1, 2}, {6}, {68, 69}, {4, 5, 6, 7})]

    def test_attributes_of_odd_sizes(self, native, setting, two_cpus):
        lines = shown(native.run(setting, "odd", ",".join(map(str, two_cpus)), count=1))
        assert [who for who, _ in lines] == ["nothing", *["mask"] * 6]
        allowed = os.sched_getaffinity(0)
        for who, masks in lines:
            assert masks == ([*[told(allowed, 1)] * 3, allowed] if who == "nothing" else [set(two_cpus)] * 4)

    def test_the_smallest_stack_will_do(self, native, setting, two_cpus):
        lines = shown(native.run(setting, "small", ",".join(map(str, two_cpus)), count=1))
        assert lines == [("thread", [set(two_cpus)])]

    @pytest.mark.parametrize("error", [errno.EPERM, -1], ids=["fails", "kills"])
    def test_a_sandbox_that_refuses_signals(self, native, setting, two_cpus, error):
        allowed = os.sched_getaffinity(0)
        lines = shown(native.run(setting, "refused", error, count=1))
        assert lines == [(who, [*[told(allowed, 1)] * 3, allowed]) for who in ("self", "thread")]


class TestAtTheSameTime:
    """Threads, signal handlers and forked children: no crash, no wrong answer, and nothing that is not safe there."""

    @pytest.mark.parametrize("what", [("threads", 64, 300), ("signals", 5000), ("forks", 60)], ids=lambda what: what[0])
    def test_no_memory_no_environment_no_symbol_is_asked_for(self, native, storm, what):
        done = native.run(storm, 3, *what, mask={3, 5, 6, 7, 8, 9, 64}, count=3, first="64,7")
        assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")

    def test_the_program_would_notice(self, native, storm):
        done = native.run(storm, 0, "breaks", mask=range(100), count=3)
        assert (done.returncode, done.stderr) == (-6, "malloc is forbidden\n")

    @pytest.mark.parametrize("what", [("threads", 64, 10), ("forks", 30)], ids=lambda what: what[0])
    def test_with_the_real_c_library_behind(self, native, plain_storm, two_cpus, what):
        done = native.run(plain_storm, 1, *what, count=1)
        assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")

    def test_threads_that_set_masks(self, native, plain_storm, two_cpus):
        if two_cpus != [0, 1]:
            missing("this process may not use the CPUs 0 and 1")
        done = native.run(plain_storm, 0, "sets", 16, 60, count=1)
        assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")


# The library is compiled into the programs: one that is linked with the shared libasan refuses every preloaded library.
# The runtime of the thread sanitizer asks for sysconf before it can bear instrumented code. NULL is given on purpose
# where the C library's header forbids it.
SANITIZERS = {
    "address": (
        "-fsanitize=address,undefined", "-fno-sanitize=nonnull-attribute", "-fno-sanitize-recover=all",
        "-static-libasan", "-static-libubsan",
    ),
    "thread": ("-fsanitize=thread", "-Dsysconf=view_sysconf"),
}  # fmt: skip


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitized(request, native):
    flags = SANITIZERS[request.param]
    source = native.directory / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    command = ["cc", *flags, "-o", str(native.directory / f"empty-{request.param}"), str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if compiled.returncode or subprocess.run(command[-2], check=False, timeout=SECONDS).returncode:
        missing(f"the compiler has no {request.param} sanitizer: {compiled.stderr}")

    def run(program: str, *arguments: object, **keywords: object) -> subprocess.CompletedProcess[str]:
        path = native.compile(program, str(ROOT / "tflaunch/view.c"), *flags, "-O1", "-pthread", "-ldl")
        preload = (native.machine,) if "mask" in keywords else ()
        return native.run(path, *arguments, preload=preload, **keywords)

    return run


class TestSanitizers:
    """No report of the sanitizers."""

    def test_answers(self, sanitized, native, probe):
        machine = {"mask": {3, 5, 6, 7, 8, 9, 64}, "count": 3}
        seen = answers(sanitized("probe.c", "counts", 8, 16, 128, 2048, first="64,7,9999", **machine))
        question = "sched_getaffinity 0 16 1"
        assert decode(seen[question][2], question) == mask_of({3, 7, 64}, question)
        assert seen["get_nprocs"][0] == 3
        seen = answers(sanitized("probe.c", 1024, first="0-65535", count=65536, mask=range(8192)))
        question = "sched_getaffinity 0 1024 0"
        assert decode(seen[question][2], question) == mask_of(set(range(8192)), question)

    @pytest.mark.parametrize("way", ["sched", "pthread", "attribute", "thread", "child", "look", "odd"])
    def test_setting(self, sanitized, two_cpus, way):
        assert shown(sanitized("setting.c", way, ",".join(map(str, two_cpus)), count=1))

    @pytest.mark.parametrize("what", [("threads", 16, 100), ("signals", 100), ("forks", 10)], ids=lambda what: what[0])
    def test_asking(self, sanitized, what):
        done = sanitized("storm.c", 3, *what, mask={3, 5, 6, 7, 8, 9, 64}, count=3)
        assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")

    def test_setting_at_the_same_time(self, sanitized, two_cpus):
        if two_cpus != [0, 1]:
            missing("this process may not use the CPUs 0 and 1")
        done = sanitized("storm.c", 0, "sets", 8, 30, count=1)
        assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")


PLAIN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    cpu_set_t mask;
    const char *error = dlerror();

    CPU_ZERO(&mask);
    printf("%d ", sched_getaffinity(0, sizeof mask, &mask));
    printf("%d %ld %s\\n", CPU_COUNT(&mask), sysconf(_SC_NPROCESSORS_ONLN), error ? error : "-");
    return 0;
}
"""


class TestOtherPrograms:
    """Allocators on either side, other C libraries, privileges."""

    ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")

    @pytest.mark.parametrize("place", [0, 1, 2], ids=["before", "between", "behind"])
    @pytest.mark.parametrize("allocator", ALLOCATORS)
    def test_allocators(self, native, plain_storm, allocator, place):
        if native.run("true", preload=(allocator,)).stderr:
            missing(f"there is no {allocator} (on Debian and Ubuntu in libjemalloc2 and libtcmalloc-minimal4)")
        preload = [native.library, native.machine]
        preload.insert(place, allocator)
        arguments = (plain_storm, 2, "threads", 32, 100)
        keywords = {"mask": range(64), "count": 2, "preload": preload}
        done = native.run(*arguments, **keywords)
        assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
        if "jemalloc" in allocator:
            # It turns this off where the functions tell different numbers of CPUs.
            options = "percpu_arena:percpu,stats_print:true"
            done = native.run(*arguments, **keywords, MALLOC_CONF=options)
            assert (done.returncode, done.stdout) == (0, "right\n")
            assert 'opt.percpu_arena: "percpu"' in done.stderr

    @pytest.mark.parametrize(
        ("compiler", "flags", "count"),
        [("cc", ("-static",), None), ("musl-gcc", ("-static",), None), ("musl-gcc", (), 1)],
        ids=["static", "static musl", "musl"],
    )
    def test_other_c_libraries(self, native, two_cpus, compiler, flags, count):
        """Static programs see the truth; those of musl the view, and no error that they did not make."""
        if subprocess.run(["which", compiler], capture_output=True, check=False).returncode:
            missing(f"there is no {compiler} (on Debian and Ubuntu in musl-tools)")
        source = native.directory / "plain.c"
        source.write_text(PLAIN)
        program = native.compile(source, *flags, compiler=compiler)
        done = native.run(program, count=1)
        allowed = len(os.sched_getaffinity(0))
        _, cpus, online, error = done.stdout.split()
        assert (done.returncode, done.stderr) == (0, "")
        assert (int(cpus), error) == (count or allowed, "-")
        assert int(online) == 1 if count else int(online) >= allowed

    def test_a_program_with_privileges_sees_the_truth(self, native, two_cpus, tmp_path):
        """The dynamic loader preloads nothing there, ld.so(8)."""
        if os.geteuid():
            missing("only root can make such a program")
        source = native.directory / "plain.c"
        source.write_text(PLAIN)
        program = tmp_path / "program"
        program.write_bytes(Path(native.compile(source)).read_bytes())
        os.chown(program, 65534, -1)
        program.chmod(0o4755)
        done = native.run(str(program), count=1)
        assert done.stdout.split()[:2] == ["0", str(len(os.sched_getaffinity(0)))]


class TestFile:
    """The library itself, read by another reader of such files."""

    @pytest.fixture
    def elf(self, native):
        with open(native.library, "rb") as file:
            yield ELFFile(file)

    def test_it_needs_the_c_library_only(self, elf):
        needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        assert "libc.so.6" in needed
        assert needed <= {"libc.so.6", "libdl.so.2"}

    def test_it_runs_with_old_c_libraries(self, elf):
        if platform.machine() not in ("x86_64", "aarch64"):
            pytest.skip("on other machines it runs with the C library it was built with, and newer ones")
        versions = [
            entry.name for _, entries in elf.get_section_by_name(".gnu.version_r").iter_versions() for entry in entries
        ]
        assert versions
        for name in versions:
            prefix, _, number = name.partition("_")
            assert prefix == "GLIBC"
            assert tuple(map(int, number.split("."))) <= (2, 17), name

    def test_it_exports_what_it_stands_for_and_nothing_else(self, elf):
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
        assert exported == INTERPOSED

    def test_nothing_can_be_written_and_executed(self, elf):
        (stack,) = (segment for segment in elf.iter_segments() if segment["p_type"] == "PT_GNU_STACK")
        assert not stack["p_flags"] & P_FLAGS.PF_X
        for segment in elf.iter_segments():
            if segment["p_type"] == "PT_LOAD":
                assert segment["p_flags"] & (P_FLAGS.PF_W | P_FLAGS.PF_X) != P_FLAGS.PF_W | P_FLAGS.PF_X
        dynamic: DynamicSection = elf.get_section_by_name(".dynamic")
        assert not list(dynamic.iter_tags("DT_TEXTREL"))
        assert all(not tag["d_val"] & 0x4 for tag in dynamic.iter_tags("DT_FLAGS"))  # DF_TEXTREL
        assert any(segment["p_type"] == "PT_GNU_RELRO" for segment in elf.iter_segments())
