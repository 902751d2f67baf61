"""`NamedTuple` with the class syntax of `typing`, without importing `typing`.

Every start of `tflaunch run` pays for its imports: `typing` costs as much as a whole interpreter start
(bench/startup.py prints both). Type checkers see the real `typing.NamedTuple`.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTupleMeta(type):
        def __new__(mcs, name, bases, namespace):
            if not bases:
                return super().__new__(mcs, name, bases, namespace)
            fields = namespace.pop("__annotations__", {})
            defaults = [namespace.pop(field) for field in fields if field in namespace]
            base = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
            return type(name, (base,), {"__slots__": (), **namespace})

    class NamedTuple(metaclass=_NamedTupleMeta):
        """Base of immutable values: `class Point(NamedTuple): x: int`."""
