"""What can go wrong, each with the exit status that `tflaunch` gives for it.

TflaunchError            125  tflaunch itself failed
├── UsageError             2  an option or TFLAUNCH_* variable cannot be understood
├── CannotRunError       126  the program was found but cannot be run
├── NotFoundError        127  the program was not found
└── TooLateError         125  apply(): TensorFlow has made its pools already
"""

from __future__ import annotations


class TflaunchError(Exception):
    """A failure told in two lines: what is wrong, and what to do."""

    exit_status = 125

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}\nhint: {hint}")
        self.what = what
        self.hint = hint


class UsageError(TflaunchError):
    """An option or a TFLAUNCH_* variable cannot be understood."""

    exit_status = 2


class CannotRunError(TflaunchError):
    """The program was found but cannot be run."""

    exit_status = 126


class NotFoundError(TflaunchError):
    """The program was not found."""

    exit_status = 127


class TooLateError(TflaunchError):
    """TensorFlow has made its pools already."""
