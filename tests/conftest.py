"""Fixtures that all tests share."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

import pytest
from trees import plant

import tflaunch
from tflaunch.view import Library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tflaunch.files import Files


def pytest_xdist_auto_num_workers() -> int:
    """For -n auto: pytest-xdist counts the cores of the host, whatever the container may use of them."""
    return math.ceil(tflaunch.explain()["limit"]["cpus"])


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Files]:
    """Plants the files of a small machine below a directory of this test's own."""
    return lambda files: plant(tmp_path, files)


@pytest.fixture
def view_library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says where the library of the view is, or why there is none, whatever was built here."""

    def say(path: str | None, problem: str | None = None) -> None:
        monkeypatch.setattr("tflaunch.view.find_library", lambda: Library(path, problem))

    return say


@pytest.fixture
def deadline() -> Iterator[None]:
    """Ends a test that hangs, which would otherwise hang the whole run."""

    def fail(signum: int, frame: object) -> None:
        pytest.fail("this does not come to an end")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
