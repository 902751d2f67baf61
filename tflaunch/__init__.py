"""Starts TensorFlow programs with every thread pool sized to the CPU they may really use.

    tflaunch.explain()   what was found and decided, as the document that `tflaunch explain --json` prints
    tflaunch.apply()     the same settings for the running process, before TensorFlow makes its pools

The command line is `tflaunch` or `python -m tflaunch`. Names are loaded when they are used: a start of `tflaunch run`
pays for nothing else.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["TflaunchError", "TooLateError", "UsageError", "__version__", "apply", "explain"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tflaunch.api import apply, explain
    from tflaunch.errors import TflaunchError, TooLateError, UsageError


def __getattr__(name: str) -> object:
    if name in ("apply", "explain"):
        from tflaunch import api

        return getattr(api, name)
    if name in ("TflaunchError", "TooLateError", "UsageError"):
        from tflaunch import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'tflaunch' has no attribute {name!r}")
