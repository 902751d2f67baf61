from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from tflaunch._namedtuple import NamedTuple


class Point(NamedTuple):
    """A point."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y

    def moved(self, by: int) -> Point:
        return self._replace(x=self.x + by)


class TypingPoint(typing.NamedTuple):
    """A point."""

    x: int
    y: int = 2


class TestNamedTuple:
    """A class of fields behaves as one of typing.NamedTuple does."""

    def test_fields_in_order_by_name_and_by_position(self):
        assert Point(1, 3) == Point(y=3, x=1) == (1, 3)
        assert Point._fields == TypingPoint._fields == ("x", "y")

    def test_default(self):
        assert Point(1) == (1, 2)
        assert Point._field_defaults == TypingPoint._field_defaults == {"y": 2}

    @pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
    def test_wrong_number_of_values(self, arguments):
        with pytest.raises(TypeError):
            Point(*arguments)

    def test_methods_and_properties(self):
        assert Point(1).total == 3
        assert Point(1).moved(4) == Point(5)
        assert type(Point(1).moved(4)) is Point

    def test_values_do_not_change(self):
        point = Point(1)
        with pytest.raises(AttributeError):
            point.x = 5
        with pytest.raises(AttributeError):
            point.z = 5
        assert not hasattr(point, "__dict__")

    def test_repr_and_documentation(self):
        assert repr(Point(1)) == "Point(x=1, y=2)"
        assert Point.__doc__ == "A point."
        assert (Point.__module__, Point.__qualname__) == (__name__, "Point")

    def test_equal_values_hash_alike(self):
        assert {Point(1): "a"}[Point(1, 2)] == "a"

    def test_typing_is_not_imported(self):
        """The reason this class exists: a start of the program does not pay for `typing`."""
        code = f"import sys; sys.path[:0] = {sys.path!r}; import tflaunch._namedtuple; print('typing' in sys.modules)"
        # -S: the site module and .pth files of an environment may import anything before the code runs.
        command = [sys.executable, "-S", "-c", code]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert ran.stdout == "False\n"
