"""Fixtures that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trees import plant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tflaunch.files import Files


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Files]:
    """Plants the files of a small machine below a directory of this test's own."""
    return lambda files: plant(tmp_path, files)
