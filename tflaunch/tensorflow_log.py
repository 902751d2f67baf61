"""What TensorFlow's own log says of its thread pools: pure.

Asked with TF_CPP_VMODULE, TensorFlow writes a line for each pool to file descriptor 2:

    I0000 00:00:1796041994.486399 16040 local_device.cc:162] LocalDevice using CPU work thread pool: 0x5, num_threads=3
    2026-11-30 13:02:40.1: I tensorflow/core/common_runtime/process_util.cc:146] Session inter op parallelism threads: 2

The first beginning is that of newer releases, the second that of 2.14 and 2.15. The first LocalDevice line is the
intra-op pool, which a process makes once; each inter-op pool has a line of its own: that of the eager context, of the
first session, and of each session with a pool of its own.
Sources: tensorflow/core/common_runtime/local_device.cc and process_util.cc, the VLOG(1) lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from tflaunch._namedtuple import NamedTuple
from tflaunch.text import natural

VMODULE = "local_device=1,process_util=1"
INTRA_OP = "LocalDevice using CPU work thread pool: "
INTER_OP = "Session inter op parallelism threads: "
# Written before the first line of the newer form, whatever that line is.
PREAMBLE = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
# The second line of the message about the processor's instructions, which stands without a beginning of its own.
CONTINUATION = "To enable the following instructions: "
LEVELS = "IWEF"
BEGINNINGS = ("L0000 00:00:", "0000-00-00 00:00:00")


class Pool(NamedTuple):
    """A pool that a line speaks of: name is "intra_op" or "inter_op"."""

    name: str
    threads: int


def with_log(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which TensorFlow writes the lines; what the caller asks of the log stays asked."""
    modules = ",".join(filter(None, [environ.get("TF_CPP_VMODULE", ""), VMODULE]))
    return {**environ, "TF_CPP_VMODULE": modules, "TF_CPP_MIN_LOG_LEVEL": "0"}


def parse_line(line: str) -> Pool | None:
    """The pool that the line speaks of, or None."""
    if not _is_from(line, "local_device.cc") and not _is_from(line, "process_util.cc"):
        return None
    _, found, rest = line.partition(INTRA_OP)
    if found:
        threads = natural(rest.rpartition("num_threads=")[2].strip())
        return None if threads is None else Pool("intra_op", threads)
    _, found, rest = line.partition(INTER_OP)
    if found:
        threads = natural(rest.strip())
        return None if threads is None else Pool("inter_op", threads)
    return None


def is_extra(line: str, environ: Mapping[str, str]) -> bool:
    """Whether the line is there only because of `with_log`; environ is the caller's environment."""
    least = natural(environ.get("TF_CPP_MIN_LOG_LEVEL", "")) or 0
    level = _level(line)
    if level is None:
        return least > 0 and line.startswith((PREAMBLE, CONTINUATION))
    return LEVELS.index(level) < least or parse_line(line) is not None


def could_be_log(beginning: str) -> bool:
    """Whether a line that begins so may become one of TensorFlow's log: then it cannot be passed on yet."""
    return PREAMBLE.startswith(beginning[: len(PREAMBLE)]) or any(_fits(beginning, form) for form in BEGINNINGS)


def _fits(beginning: str, form: str) -> bool:
    """Whether the text is as the form says, as far as both go: L a level, 0 a digit, anything else itself."""
    return all(
        char in LEVELS if wanted == "L" else char.isdigit() if wanted == "0" else char == wanted
        for char, wanted in zip(beginning, form)
    )


def _level(line: str) -> str | None:
    """The level of a line of TensorFlow's log, in both of its forms; None for any other line."""
    head, bracket, _ = line.partition("] ")
    words = head.split()
    if not bracket or len(words) < 4:
        return None
    # "I0000 00:00:1796041994.486399   16040 local_device.cc:162" and "2026-11-30 13:02:40.123456: I tensorflow/...:146"
    if len(words) == 4 and words[0][:1] in LEVELS and natural(words[0][1:]) is not None:
        return words[0][0]
    if len(words) == 4 and words[2] in tuple(LEVELS) and words[1].endswith(":"):
        return words[2]
    return None


def _is_from(line: str, source: str) -> bool:
    """Whether the line was written by that source file of TensorFlow's."""
    if _level(line) is None:
        return False
    place = line.partition("] ")[0].split()[-1]
    return place.rpartition(":")[0].rpartition("/")[2] == source
