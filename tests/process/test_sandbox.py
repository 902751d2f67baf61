"""Docker's default seccomp profile refuses the calls of NUMA policy, and sandboxes refuse more: the script starts."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

import pytest

# Numbers of system calls on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).
CALLS = {"set_mempolicy": 238, "get_mempolicy": 239, "mbind": 237, "migrate_pages": 256, "sched_setaffinity": 203}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000


def refuse(number: int) -> None:
    """Let these calls of this process and of all that it becomes fail with that errno (seccomp(2), classic BPF)."""
    load, jump_if_equal, give_back = 0x20, 0x15, 0x06
    program = [struct.pack("<HBBI", load, 0, 0, 0)]  # the number of the call
    for position, call in enumerate(CALLS.values()):
        program.append(struct.pack("<HBBI", jump_if_equal, len(CALLS) - position, 0, call))
    program.append(struct.pack("<HBBI", give_back, 0, 0, SECCOMP_RET_ALLOW))
    program.append(struct.pack("<HBBI", give_back, 0, 0, SECCOMP_RET_ERRNO | number))
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header) == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64")
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
def test_numa_policy_and_binding_are_never_needed(tflaunch, program, script, number):
    name = script(
        "import errno, os",
        "try:",
        "    os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "except OSError as error:",
        "    print(error.errno, os.environ['TF_NUM_INTRAOP_THREADS'])",
    )
    sandbox = (sys.executable, __file__, str(number), program)
    done = tflaunch("run", "--intra-op", "1", name, prefix=sandbox)
    assert (done.returncode, done.stdout) == (0, f"{number} 1\n"), done.stderr
    assert done.stderr.count("\n") == 1


if __name__ == "__main__":
    refuse(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
