"""`run --init`, and tflaunch as process 1 of a PID namespace, as in a container: what tini's own tests ask and more."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from missing import missing
from shared import WAIT

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, makes PID namespaces"),
    pytest.mark.usefixtures("deadline"),
]

SECONDS = 20
NAMESPACE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")


@pytest.fixture
def tflaunch(tflaunch):
    """Without the terminal of whoever runs these tests: it is not given to and fro."""
    return partial(tflaunch, start_new_session=True)


@pytest.fixture(scope="session")
def namespace() -> tuple[str, ...]:
    """The command that starts another as process 1; a failure where that is promised to work, a skip elsewhere."""
    try:
        done = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
        reason = "" if done.returncode == 0 else f"no PID namespace can be made here: {done.stderr.strip()}"
    except FileNotFoundError:
        reason = "there is no unshare here (util-linux)"
    if reason:
        missing(reason)
    return NAMESPACE


@pytest.fixture(params=["process 1", "another process"])
def place(request) -> tuple[str, ...]:
    """What stands before tflaunch: it is the first process of a namespace, or one of many."""
    return request.getfixturevalue("namespace") if request.param == "process 1" else ()


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def tflaunch_in(process, place) -> int:
    """Its process id; in a namespace it is the child of unshare."""
    return children(process.pid)[0] if place else process.pid


@contextmanager
def started(place, command, environment, directory, **keywords):
    """The process that was started, once the program has said that it is ready."""
    settings = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True, **keywords}
    with subprocess.Popen([*place, *command], cwd=directory, env=environment, **settings) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            if process.poll() is None:
                for program in children(process.pid):
                    os.kill(program, signal.SIGKILL)
                process.kill()


# signal(7): what ends a program that does not handle it, without those that tell of a fault in the receiver.
ENDING = [
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGXCPU",
    "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGPOLL", "SIGPWR", "SIGRTMIN", "SIGRTMAX",
]  # fmt: skip
NOT_ENDING = ["SIGCONT", "SIGTSTP", "SIGURG", "SIGWINCH"]
# Python has no name for SIGSTKFLT before 3.11.
NUMBERS = {name: int(getattr(signal, name, 16)) for name in ENDING + NOT_ENDING}


class TestStatus:
    """The status is the program's; 128 + n where signal n ended it, as a shell says it."""

    @pytest.mark.parametrize("status", [0, 1, 2, 42, 125, 126, 127, 128, 143, 255])
    def test_of_a_script(self, tflaunch, program, script, place, status):
        name = script("import sys", f"sys.exit({status})")
        assert tflaunch("run", "--init", name, prefix=(*place, program)).returncode == status

    @pytest.mark.parametrize("name", ENDING)
    def test_a_signal_to_tflaunch_ends_the_program(self, program, environment, tmp_path, place, name):
        command = [program, "run", "--init", "--no-python", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 60"]
        with started(place, command, environment, tmp_path) as process:
            os.kill(tflaunch_in(process, place), NUMBERS[name])
            assert process.wait(timeout=SECONDS) == 128 + NUMBERS[name]

    @pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGPIPE", "SIGTRAP"])
    def test_a_program_that_a_signal_of_its_own_ends(self, tflaunch, program, place, name):
        code = f"ulimit -c 0; kill -{name.removeprefix('SIG')} $$"
        done = tflaunch("run", "--init", "--no-python", "sh", "-c", code, prefix=(*place, program))
        assert done.returncode == 128 + getattr(signal, name)

    def test_where_the_caller_ignores_the_end_of_children(self, tflaunch, program, script):
        name = script("import sys", "sys.exit(7)")
        prefix = (*parent("signal.signal(signal.SIGCHLD, signal.SIG_IGN)"), program)
        assert tflaunch("run", "--init", name, prefix=prefix).returncode == 7

    def test_what_the_program_leaves_running_is_not_waited_for(self, program, environment, script, tmp_path, place):
        name = script(
            "import os, sys",
            "if os.fork() == 0:",
            "    os.close(1)",
            "    sys.stdin.read()",
            "    os._exit(0)",
            "print('ready', flush=True)",
            "sys.exit(3)",
        )
        command = [program, "run", "--init", name]
        with started(place, command, environment, tmp_path, stdin=subprocess.PIPE) as process:
            assert process.wait(timeout=SECONDS) == 3


class TestSignals:
    """What is sent to tflaunch reaches the program, once."""

    def test_each_reaches_a_handler(self, program, environment, script, tmp_path, place):
        name = script(
            "import signal, time",
            f"names = { ({number: name for name, number in NUMBERS.items()})!r}",
            "for number in names:",
            "    signal.signal(number, lambda received, frame: print(names[received], flush=True))",
            "print('ready', flush=True)",
            WAIT,
        )
        with started(place, [program, "run", "--init", name], environment, tmp_path) as process:
            tflaunch = tflaunch_in(process, place)
            for sent, number in NUMBERS.items():
                os.kill(tflaunch, number)
                assert process.stdout.readline() == f"{sent}\n"
            os.kill(children(tflaunch)[0], signal.SIGKILL)
            # Nothing came twice.
            assert process.stdout.read() == ""

    def test_one_that_comes_before_the_program_has_started(self, inside):
        preparation = (
            "real = os.fork\n"
            "def fork():\n"
            "    process = real()\n"
            "    if process: os.kill(os.getpid(), 15)\n"
            "    return process\n"
            "os.fork = fork"
        )
        assert inside(preparation, "run", "--init", "--no-python", "sleep", "60").returncode == 143

    @pytest.mark.parametrize("handler", ["", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))"])
    def test_it_stops_within_a_second_of_sigterm(self, program, environment, script, tmp_path, place, handler):
        """The fastest of three counts: the machine may be busy with something else."""
        name = script("import signal, sys, time", handler, "print('ready', flush=True)", WAIT)
        seconds = []
        for _ in range(3):
            with started(place, [program, "run", "--init", name], environment, tmp_path) as process:
                tflaunch = tflaunch_in(process, place)
                before = time.monotonic()
                os.kill(tflaunch, signal.SIGTERM)
                assert process.wait(timeout=SECONDS) == (5 if handler else 143)
                seconds.append(time.monotonic() - before)
        assert min(seconds) < 1


def parent(preparation: str) -> tuple[str, ...]:
    """A process that prepares itself by a line of Python and then becomes what follows."""
    restore = "signal.signal(signal.SIGPIPE, signal.SIG_DFL); signal.signal(signal.SIGXFSZ, signal.SIG_DFL)"
    code = f"import os, signal, sys\n{restore}\n{preparation}\nos.execvp(sys.argv[1], sys.argv[1:])"
    return (sys.executable, "-c", code)


# dash and bash have SIGCHLD for themselves, so the other ones do without.
SHELL = """sys.argv[1:1] = ["sh", "-c", 'exec "$@"', "sh"]"""


def signals(status: str) -> dict[str, str]:
    """SigBlk (blocked), SigIgn (ignored), SigCgt (caught) of proc_pid_status(5)."""
    found = dict(re.findall(r"^(Sig(?:Blk|Ign|Cgt)):\s*(\w+)$", status, re.M))
    assert len(found) == 3, status
    return found


@pytest.mark.parametrize("options", [(), ("--init",)], ids=["exec", "--init"])
@pytest.mark.parametrize(
    "preparation",
    [
        SHELL,
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGTTOU, signal.SIGRTMIN})",
    ],
    ids=["a shell", "SIGHUP ignored", "SIGCHLD ignored", "SIGTERM and SIGINT ignored", "blocked"],
)
class TestDispositions:
    """Blocked, ignored and caught signals are those of a program that a shell, or another parent, execs."""

    def test_of_a_script(self, tflaunch, program, script, preparation, options):
        name = script("print(open('/proc/self/status').read())")
        without = tflaunch(name, prefix=(*parent(preparation), sys.executable)).stdout
        seen = tflaunch("run", *options, name, prefix=(*parent(preparation), program)).stdout
        assert signals(seen) == signals(without)

    def test_of_another_program(self, tflaunch, program, preparation, options):
        cat = ("cat", "/proc/self/status")
        without = tflaunch(*cat, prefix=parent(preparation)).stdout
        seen = tflaunch("run", *options, "--no-python", *cat, prefix=(*parent(preparation), program)).stdout
        assert signals(seen) == signals(without)
        if preparation == SHELL:
            assert (signals(seen)["SigBlk"], signals(seen)["SigIgn"]) == ("0" * 16, "0" * 16)

    def test_of_a_program_below_process_1(self, tflaunch, program, namespace, preparation, options):
        cat = ("cat", "/proc/self/status")
        without = tflaunch(*cat, prefix=(*parent(preparation), *namespace)).stdout
        prefix = (*parent(preparation), *namespace, program)
        seen = tflaunch("run", *options, "--no-python", *cat, prefix=prefix).stdout
        assert signals(seen) == signals(without)


class TestProcesses:
    """The program is the child of tflaunch, in a group of its own; orphans come to tflaunch and go away."""

    @pytest.mark.parametrize(
        ("options", "variables"), [(("--init",), {}), ((), {"TFLAUNCH_INIT": "1"})], ids=["option", "variable"]
    )
    def test_group_and_session(self, tflaunch, program, script, place, options, variables):
        name = script(
            "import os",
            "print(os.getpid(), os.getpgrp(), os.getppid(), os.getsid(0) == os.getsid(os.getppid()))",
        )
        prefix = (*place, "sh", "-c", 'echo $$; exec "$@"', "sh", program)
        done = tflaunch("run", *options, name, prefix=prefix, variables=variables)
        started, own, group, its_parent, has_the_session = done.stdout.split()
        assert its_parent == started
        assert own == group != its_parent
        assert has_the_session == "True"

    def test_without_it_the_program_is_the_process_that_was_started(self, tflaunch, program, script, place):
        name = script("import os", "print(os.getpid())")
        code = 'echo $$; exec "$@"'
        seen = tflaunch("run", name, prefix=(*place, "sh", "-c", code, "sh", program)).stdout.split()
        assert len(seen) == 2
        assert seen[0] == seen[1]

    def test_orphans_are_reaped_while_the_program_runs(self, tflaunch, program, script, place):
        name = script(
            "import os, time",
            "orphans = []",
            "for _ in range(20):",
            "    waits, holds = os.pipe()",
            "    tells, told = os.pipe()",
            "    middle = os.fork()",
            "    if middle == 0:",
            "        orphan = os.fork()",
            "        if orphan == 0:",
            "            os.close(holds)",
            "            os.read(waits, 1)",
            "            os._exit(9)",
            "        os.write(told, str(orphan).encode())",
            "        os._exit(0)",
            "    os.waitpid(middle, 0)",
            "    orphans.append((os.read(tells, 20).decode(), holds))",
            "for orphan, holds in orphans:",
            "    status = open(f'/proc/{orphan}/status').read()",
            "    assert f'PPid:\\t{os.getppid()}\\n' in status, status",
            "    os.close(holds)",
            "end = time.monotonic() + 20",
            "left = [orphan for orphan, _ in orphans]",
            "while left and time.monotonic() < end:",
            "    left = [orphan for orphan in left if os.path.exists(f'/proc/{orphan}')]",
            "print('left', left)",
        )
        done = tflaunch("run", "--init", "-q", name, prefix=(*place, program))
        assert (done.returncode, done.stdout, done.stderr) == (0, "left []\n", "")


class Terminal:
    """A pseudo-terminal with the process that leads its session."""

    def __init__(self, command, environment, directory):
        self.master, slave = os.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], cwd=directory, env=environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)

    def expect(self, words: str) -> str:
        """Read until these words have come; what came before them."""
        end = time.monotonic() + SECONDS
        while words not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {words!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.master, 4096).decode()
            except OSError:  # the other side is closed
                pytest.fail(f"no {words!r} in {self.seen!r}")
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def close(self) -> None:
        """Hangs up, which ends what still runs."""
        os.close(self.master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def terminal(environment, tmp_path):
    """Start a command as the leader of a session on a terminal of its own."""
    opened = []

    def start(*command):
        opened.append(Terminal(command, environment, tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


PRINT_PLACE = "print('foreground' if os.tcgetpgrp(0) == os.getpgrp() else 'background', flush=True)"


class TestTerminal:
    """The program has the terminal, as if it were started without tflaunch, and the shell has it again afterwards."""

    def test_an_interrupt_reaches_the_program_once(self, terminal, program, script):
        name = script(
            "import os, signal, time",
            "interrupts = []",
            "signal.signal(signal.SIGINT, lambda *_: [interrupts.append(1), os.write(1, b'interrupted')])",
            "signal.signal(signal.SIGUSR1, lambda *_: print('interrupts:', len(interrupts), flush=True))",
            PRINT_PLACE,
            WAIT,
        )
        opened = terminal(program, "run", "--init", name)
        opened.expect("foreground")
        opened.type("\x03")
        opened.expect("interrupted")
        # tflaunch passes on the lower number first, so one that it had got too would be counted.
        os.kill(opened.process.pid, signal.SIGUSR1)
        opened.expect("interrupts: 1\r\n")

    def test_an_interrupt_ends_a_script_that_does_not_handle_it(self, terminal, program, script):
        name = script("import os, signal, time", PRINT_PLACE, WAIT)
        opened = terminal(program, "run", "--init", name)
        opened.expect("foreground")
        opened.type("\x03")
        opened.expect("KeyboardInterrupt")
        assert opened.process.wait(timeout=SECONDS) == 128 + signal.SIGINT

    def test_it_reads_what_is_typed(self, terminal, program, script):
        opened = terminal(program, "run", "--init", script("print('typed:', input('name? '))"))
        opened.expect("name? ")
        opened.type("some words\n")
        opened.expect("typed: some words")
        assert opened.process.wait(timeout=SECONDS) == 0

    def test_the_shell_has_it_back_at_the_end(self, terminal, program, script):
        name = script("import os", PRINT_PLACE)
        after = f"import os; print('afterwards', end=' '); {PRINT_PLACE}"
        code = f'"{program}" run --init {name}; "{sys.executable}" -c "{after}"'
        opened = terminal("sh", "-c", code)
        opened.expect("foreground")
        opened.expect("afterwards foreground")

    def test_a_background_job_does_not_take_it(self, terminal, program, script):
        name = script("import os", PRINT_PLACE)
        opened = terminal("sh", "-mc", f'"{program}" run --init {name} & wait $!; echo status $?')
        opened.expect("background")
        opened.expect("status 0")

    def test_stop_and_foreground_of_a_shell(self, terminal, program, script):
        name = script("import os", PRINT_PLACE, "print('typed:', input('name? '))", PRINT_PLACE)
        code = f'"{program}" run --init {name}; echo status $?; read go; fg; echo status $?'
        opened = terminal("sh", "-mc", code)
        opened.expect("foreground")
        opened.expect("name? ")
        opened.type("\x1a")
        opened.expect(f"status {128 + signal.SIGSTOP}")
        opened.type("go\n")
        opened.type("some words\n")
        opened.expect("typed: some words")
        opened.expect("foreground")
        opened.expect("status 0")

    def test_a_background_job_that_reads_stops_until_it_is_in_the_foreground(self, terminal, program, script):
        name = script("print('typed:', input('name? '))")
        code = f'"{program}" run --init {name} & wait $!; echo status $?; fg; echo status $?'
        opened = terminal("sh", "-mc", code)
        opened.expect("name? ")
        opened.expect(f"status {128 + signal.SIGSTOP}")
        opened.type("some words\n")
        opened.expect("typed: some words")
        opened.expect("status 0")

    def test_without_a_shell_there_is_nobody_to_stop_for(self, terminal, program, script):
        opened = terminal(program, "run", "--init", script("print('typed:', input('name? '))"))
        opened.expect("name? ")
        opened.type("\x1a")
        opened.type("some words\n")
        opened.expect("typed: some words")
        assert opened.process.wait(timeout=SECONDS) == 0


class TestProcess1WithoutIt:
    """tflaunch execs the program as ever, and says what the kernel does to a process 1."""

    def test_a_script_ignores_sigterm(self, program, environment, script, tmp_path, namespace):
        """What the message claims."""
        name = script("import os", "print('ready', flush=True)", "input()", "print('alive', os.getpid())")
        with started(
            namespace, [program, "run", name], environment, tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            os.kill(tflaunch_in(process, namespace), signal.SIGTERM)
            output, errors = process.communicate("\n", timeout=SECONDS)
        assert (process.returncode, output) == (0, "alive 1\n")
        (line,) = errors.splitlines()
        assert line.endswith("; as process 1 a Python without a SIGTERM handler ignores SIGTERM (hint: --init)")

    def test_another_program(self, tflaunch, program, namespace):
        (line,) = tflaunch("run", "--no-python", "true", prefix=(*namespace, program)).stderr.splitlines()
        assert line.endswith("; as process 1 a program without a SIGTERM handler ignores SIGTERM (hint: --init)")

    @pytest.mark.parametrize("options", [("-q",), ("--init",), ("--init", "-q")], ids=" ".join)
    def test_nothing_is_said(self, tflaunch, program, script, namespace, options):
        done = tflaunch("run", *options, script(""), prefix=(*namespace, program))
        assert len(done.stderr.splitlines()) == (0 if "-q" in options else 1)
        assert "SIGTERM" not in done.stderr

    @pytest.mark.parametrize("options", [(), ("--init",)], ids=["exec", "--init"])
    def test_nothing_is_said_to_another_process(self, tflaunch, script, options):
        (line,) = tflaunch("run", *options, script("")).stderr.splitlines()
        assert "process 1" not in line


class TestErrors:
    """What cannot be started is told as without --init, once; a fault of tflaunch keeps nothing from starting."""

    @pytest.mark.parametrize(
        ("command", "status"),
        [
            (("missing.py",), 127),
            (("--no-python", "no-such-program"), 127),
            (("--no-python", "./text"), 126),
            (("--no-python", "./broken"), 126),
            (("directory",), 126),
            (("-m", "no_such_module"), 1),
        ],
        ids=lambda value: value[-1] if isinstance(value, tuple) else str(value),
    )
    def test_what_cannot_be_started(self, tflaunch, program, tmp_path, place, command, status):
        (tmp_path / "text").write_text("no program")
        (tmp_path / "broken").write_text("#!/nonexistent/interpreter\n")
        (tmp_path / "broken").chmod(0o755)
        (tmp_path / "directory").mkdir()
        without = tflaunch("run", "-q", *command, prefix=(*place, program))
        done = tflaunch("run", "-q", "--init", *command, prefix=(*place, program))
        assert done.returncode == without.returncode == status
        assert (done.stdout, done.stderr) == (without.stdout, without.stderr)
        if status != 1:
            error, hint = done.stderr.splitlines()
            assert error.startswith("tflaunch: error: ")
            assert hint.startswith("hint: ")

    NO_FORK = "def fork(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = fork"

    def test_no_process_can_be_made(self, inside, script):
        name = script("import os", "print(open('/proc/self/status').read())", "raise SystemExit(9)")
        done = inside(self.NO_FORK, "run", "--init", name)
        assert done.returncode == 9
        assert signals(done.stdout)["SigBlk"] == "0" * 16
        _, warning = done.stderr.splitlines()
        assert warning.startswith("tflaunch: warning: ")
        assert "Resource temporarily unavailable" in warning
        assert inside(self.NO_FORK, "run", "--init", "-q", name).stderr == ""

    def test_it_is_an_error_with_strict(self, inside, script):
        done = inside(self.NO_FORK, "run", "--init", "-q", "--strict", script("print('ran')"))
        error, hint = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (125, "")
        assert "Resource temporarily unavailable (--strict)" in error
        assert hint.startswith("hint: ")

    def test_a_fault_in_what_was_found(self, inside, script):
        fault = "import tflaunch.launch\ntflaunch.launch.decide = lambda *arguments: 1 / 0"
        done = inside(fault, "run", "--init", script("import os", "print(os.getpid() == os.getpgrp())"))
        assert (done.returncode, done.stdout) == (0, "True\n")
        (warning,) = done.stderr.splitlines()
        assert "ZeroDivisionError" in warning

    def test_a_python_without_ctypes(self, inside, script):
        done = inside("sys.modules['ctypes'] = None", "run", "--init", script("raise SystemExit(4)"))
        assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)

    def test_dry_run_starts_nothing(self, tflaunch, script, tmp_path):
        done = tflaunch("run", "--init", "--dry-run", script("open('ran', 'w')"))
        assert (done.returncode, (tmp_path / "ran").exists()) == (0, False)


@pytest.mark.parametrize("variables", [{}, {"TFLAUNCH_INIT": "1"}], ids=["exec", "init"])
def test_only_a_start_that_asks_for_it_pays_for_it(tflaunch, script, variables):
    code = "import sys; from tflaunch.main import main; sys.exit(main())"
    prefix = (sys.executable, "-X", "importtime", "-c", code)
    done = tflaunch("run", script("print('out')"), prefix=prefix, variables=variables)
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    imported = set(re.findall(r"\|\s+(\S+)$", done.stderr, re.M))
    assert "tflaunch.launch" in imported
    assert ("tflaunch.init" in imported) == bool(variables)
