"""The filter between a script's standard error and the user: whatever the pieces, what is passed on is the same."""

from __future__ import annotations

import pytest

from tflaunch.tensorflow_log import Pool
from tflaunch.verify import LogFilter

INTRA_OP = b"I0000 00:00:1.5 16040 local_device.cc:162] LocalDevice using CPU work thread pool: 0x5, num_threads=3\n"
INTER_OP = b"2026-11-30 13:02:40.1: I tensorflow/core/process_util.cc:146] Session inter op parallelism threads: 2\n"
OTHER = b"I0000 00:00:1796041994.486399   16040 cpu_feature_guard.cc:227] This TensorFlow binary is optimized\n"


def run(pieces, environ=None):
    log_filter = LogFilter(environ or {})
    passed = b"".join([*map(log_filter.feed, pieces), log_filter.release()])
    return passed, log_filter.pools


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10000])
def test_any_pieces(size):
    data = b"start\n" + INTRA_OP + b"\xff\x00 no utf-8\n" + OTHER + INTER_OP + b"1 Traceback\r\nend without newline"
    passed, pools = run([data[start : start + size] for start in range(0, len(data), size)])
    assert passed == b"start\n\xff\x00 no utf-8\n" + OTHER + b"1 Traceback\r\nend without newline"
    assert pools == [Pool("intra_op", 3), Pool("inter_op", 2)]


def test_a_progress_bar_is_passed_on_at_once():
    log_filter = LogFilter({})
    assert log_filter.feed(b"\r 10%") == b"\r 10%"
    assert log_filter.feed(b"\r 20%") == b"\r 20%"
    assert log_filter.feed(b" done\n" + INTER_OP) == b" done\n"


def test_what_looks_like_a_log_line_waits_for_its_end_or_for_silence():
    log_filter = LogFilter({})
    assert log_filter.feed(b"I00") == b""
    assert log_filter.release() == b"I00"
    assert log_filter.feed(b"PS\nnext\n") == b"PS\nnext\n"
