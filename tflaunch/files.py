"""Reading the kernel's files below a root: the only place where facts enter.

Everything read is untrusted and may be missing, unreadable, huge or not a file at all. No reader fails for that: what
could not be used is remembered here and becomes at most one warning of each kind.
"""

from __future__ import annotations

import os

from tflaunch._namedtuple import NamedTuple
from tflaunch.errors import UsageError
from tflaunch.text import printable

# /proc/self/mountinfo of a host with thousands of containers has a few MiB; nothing else comes near.
MAX_BYTES = 16 * 1024 * 1024


class Problem(NamedTuple):
    """Something the user should know; `code` is stable, `message` is for people."""

    code: str
    message: str


def open_tree(directory: str) -> Files:
    """The tree below the directory, "/" for this machine. UsageError where there is no such directory."""
    try:
        is_directory = os.path.isdir(directory)
    except ValueError:  # a NUL byte, on older Pythons
        is_directory = False
    if not is_directory:
        raise UsageError(f"--sysroot {directory!r} is no directory", "give the directory that holds proc/ and sys/")
    return Files(directory)


class Files:
    """The tree below `root`; `/` is this machine, another directory is a recorded one."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self._unusable: dict[str, list[str]] = {}

    @property
    def is_this_machine(self) -> bool:
        """Whether the tree is that of the running system, not a recorded one."""
        return self.root == "/"

    def read(self, path: str) -> str | None:
        """The text of the file, or None where there is none. An unreadable file is reported and counts as missing."""
        try:
            # O_NONBLOCK: opening a named pipe must not wait for a writer.
            descriptor = os.open(self._below_root(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            try:
                chunks = []
                size = 0
                while size < MAX_BYTES and (chunk := os.read(descriptor, 65536)):
                    chunks.append(chunk)
                    size += len(chunk)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.report("unreadable_file", path, error.strerror or str(error))
            return None
        except ValueError:  # a NUL byte in a path made from another file
            self.report("malformed_file", path, "no such path is possible")
            return None
        # Some recorders of a machine leave a NUL behind the text.
        return os.fsdecode(b"".join(chunks)).rstrip("\0")

    def names(self, directory: str) -> list[str]:
        """What is in the directory; nothing where there is none."""
        try:
            return os.listdir(self._below_root(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            self.report("unreadable_file", directory, getattr(error, "strerror", None) or str(error))
            return []

    def report(self, code: str, path: str, why: str) -> None:
        """Remember that a file could not be used."""
        self._unusable.setdefault(code, []).append(printable(f"{path}: {why}"))

    def problems(self) -> tuple[Problem, ...]:
        """One problem for each kind: the first file, and how many more."""
        return tuple(
            Problem(code, f"ignored {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))
            for code, found in self._unusable.items()
        )

    def _below_root(self, path: str) -> str:
        return path if self.is_this_machine else self.root + path
