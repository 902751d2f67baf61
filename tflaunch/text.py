"""Small rules for untrusted text: numbers in kernel files and variables, and what may reach a terminal."""

from __future__ import annotations

# The largest number the kernel writes into the files read here is 2^64 - 1, of 20 digits. A longer run of digits is
# not a number of the kernel's, and int() refuses very long ones with an exception.
MAX_DIGITS = 20


def natural(text: str) -> int | None:
    """The number written in ASCII digits only, or None: no sign, no blanks, no "1_000", no "٣", at most 20 digits."""
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        return int(text)
    return None


def printable(text: str) -> str:
    """text with control characters, undecodable bytes and the like written as escapes.

    Files and variables of a container are untrusted: they must not move a terminal's cursor or break its output.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)
