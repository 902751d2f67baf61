"""The lines of TensorFlow's log, as releases from 2.14 to 2.21 write them."""

from __future__ import annotations

import pytest

from tflaunch.tensorflow_log import Pool, could_be_log, is_extra, parse_line, with_log

NEW = "I0000 00:00:1796041994.486399   16040 "
OLD = "2026-11-30 13:02:40.123456: I tensorflow/core/common_runtime/"
INTRA_OP = "local_device.cc:162] LocalDevice using CPU work thread pool: 0x556ff5803890, num_threads="
INTER_OP = "process_util.cc:161] Session inter op parallelism threads: "


class TestParseLine:
    """A line of one of the two source files gives the pool; any other line gives none."""

    @pytest.mark.parametrize("beginning", [NEW, OLD], ids=["2.21", "2.15"])
    @pytest.mark.parametrize("threads", [1, 3, 64, 1000])
    def test_pools(self, beginning, threads):
        assert parse_line(f"{beginning}{INTRA_OP}{threads}") == Pool("intra_op", threads)
        assert parse_line(f"{beginning}{INTER_OP}{threads}") == Pool("inter_op", threads)

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "Session inter op parallelism threads: 2",
            f"{INTER_OP}2",
            f"{NEW}{INTER_OP}",
            f"{NEW}{INTER_OP}-1",
            f"{NEW}{INTER_OP}2 3",
            f"{NEW}{INTRA_OP}",
            f"{NEW}{INTRA_OP}3x",
            f"{NEW}other.cc:161] Session inter op parallelism threads: 2",
            f"I say: {INTER_OP}2",
            f"{OLD}session.cc:1] {INTRA_OP}2",
            "\udcff" * 100,
            "] " * 1000,
        ],
    )
    def test_other_lines(self, line):
        assert parse_line(line) is None


class TestIsExtra:
    """What the user would not have seen without the observation is kept from them, and nothing else."""

    @pytest.mark.parametrize("beginning", [NEW, OLD])
    def test_the_pools(self, beginning):
        assert is_extra(f"{beginning}{INTER_OP}2", {})

    @pytest.mark.parametrize("level", ["", "0"])
    def test_the_rest_of_the_log(self, level):
        environ = {"TF_CPP_MIN_LOG_LEVEL": level}
        assert not is_extra(f"{NEW}cpu_feature_guard.cc:227] This TensorFlow binary is optimized", environ)
        assert not is_extra(
            "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR", environ
        )

    @pytest.mark.parametrize(("level", "hidden"), [("1", "I"), ("2", "IW"), ("3", "IWE")])
    def test_what_the_user_had_switched_off(self, level, hidden):
        for letter in "IWE":
            for line in (f"{letter}{NEW[1:]}x.cc:1] text", f"2026-11-30 13:02:40.1: {letter} tensorflow/x.cc:1] text"):
                assert is_extra(line, {"TF_CPP_MIN_LOG_LEVEL": level}) == (letter in hidden)

    def test_the_second_line_of_a_message(self):
        line = "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow"
        assert not is_extra(line, {})
        assert is_extra(line, {"TF_CPP_MIN_LOG_LEVEL": "1"})

    @pytest.mark.parametrize("line", ["", "loss: 0.3", "I am a line", "Epoch 1/3 [====] 2] x", "E0000"])
    def test_lines_of_the_script(self, line):
        assert not is_extra(line, {"TF_CPP_MIN_LOG_LEVEL": "3"})


class TestWithLog:
    """The lines are asked for beside what the user asks for."""

    def test_nothing_asked(self):
        assert with_log({"A": "b"}) == {
            "A": "b",
            "TF_CPP_VMODULE": "local_device=1,process_util=1",
            "TF_CPP_MIN_LOG_LEVEL": "0",
        }

    def test_something_asked(self):
        environ = with_log({"TF_CPP_VMODULE": "bfc_allocator=2", "TF_CPP_MIN_LOG_LEVEL": "3"})
        assert environ["TF_CPP_VMODULE"] == "bfc_allocator=2,local_device=1,process_util=1"
        assert environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


class TestCouldBeLog:
    """The beginning of a line is held back only if it may still become a line of the log."""

    @pytest.mark.parametrize("line", [f"{NEW}{INTER_OP}2", f"{OLD}{INTER_OP}2"])
    def test_every_beginning_of_one(self, line):
        assert all(could_be_log(line[:length]) for length in range(1, len(line)))

    @pytest.mark.parametrize("beginning", ["loss", " 10%", "\r 10%", "\x1b[1m", "#", "Epoch", "100%|███"])
    def test_progress(self, beginning):
        assert not could_be_log(beginning)
