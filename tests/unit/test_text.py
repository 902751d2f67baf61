from __future__ import annotations

import pytest

from tflaunch.text import natural, printable


class TestNatural:
    """Only a plain run of ASCII digits is a number."""

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("0", 0),
            ("7", 7),
            ("007", 7),
            ("100000", 100000),
            ("18446744073709551615", 2**64 - 1),  # the largest the kernel writes
        ],
    )
    def test_digits_are_a_number(self, text, number):
        assert natural(text) == number

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1\n",
            "1_000",
            "1,000",
            "1.5",
            "1e3",
            "0x10",
            "max",
            "٣",
            "²",
            "Ⅷ",
            "\uff11",
            "1\0",
        ],
    )
    def test_anything_else_is_none(self, text):
        assert natural(text) is None

    def test_more_digits_than_the_kernel_writes_are_no_number(self):
        assert natural("1" * 21) is None

    def test_digits_that_int_refuses_are_no_error(self):
        assert natural("9" * 100_000) is None


class TestPrintable:
    """What came from a file can be shown on a terminal without effect on it."""

    @pytest.mark.parametrize("text", ["", "cpu.max: 150000 100000", "/sys/fs/Gruppe-Ä/日本", "back\\slash"])
    def test_ordinary_text_stays(self, text):
        assert printable(text) == text

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("a\x1b[2Jb", r"a\x1b[2Jb"),  # clear the screen
            ("a\nb\rc\td", r"a\nb\rc\td"),
            ("a\0b", r"a\x00b"),
            ("a\x9bb", r"a\x9bb"),  # the one-byte form of escape [
            ("a\u202eb", r"a\u202eb"),  # text that runs backwards
            ("a\udcffb", r"a\udcffb"),  # a byte that was no UTF-8
            ("ä\n日", r"ä\n日"),
        ],
        ids=["escape", "line ends", "nul", "c1", "right to left", "undecodable byte", "letters beside it"],
    )
    def test_controls_are_written_as_escapes(self, text, shown):
        assert printable(text) == shown
        assert printable(text).isprintable()
        printable(text).encode()  # no lone surrogate is left, which would break a UTF-8 stream
