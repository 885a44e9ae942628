"""``typing.NamedTuple``, for a tenth of what it costs to declare one.

A broker declares 170 before its first answer, which was a tenth of its start: the standard library compiles
two pieces of source for each, its constructor and its annotations, to check that these are some. Here a class
takes constructor and fields from a tuple of as many fields, which is made once, and its annotations stay the
texts that they are. What comes out is the same but for ``__annotations__``:
``tests/unit/test_named_tuple.py`` holds them equal. Type checkers see ``typing.NamedTuple``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from functools import cache
from types import FunctionType, new_class
from typing import TYPE_CHECKING, Any, Self
from typing import NamedTuple as TypingNamedTuple

__all__ = ["NamedTuple"]


class _Methods(tuple[Any, ...]):
    """What named tuples of all kinds have in common."""

    __slots__ = ()
    if TYPE_CHECKING:  # else it would be among the types of the fields
        _fields: tuple[str, ...]

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:
        made = tuple.__new__(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Self:
        replaced = tuple.__new__(type(self), map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return replaced

    __replace__ = _replace

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({fields})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


@cache
def _with_fields(count: int) -> type[tuple[Any, ...]]:
    return namedtuple("_", [f"field_{number}" for number in range(count)])


def _declare(name: str, others: tuple[type, ...], body: dict[str, Any]) -> type:
    fields = tuple(body.get("__annotations__", ()))
    defaults = {field: body[field] for field in fields if field in body}
    if tuple(defaults) != fields[len(fields) - len(defaults) :]:
        raise TypeError(f"{name}: a field without a default follows one with a default")
    like = _with_fields(len(fields))
    constructor: Any = like.__new__
    code = constructor.__code__.replace(co_varnames=("_cls", *fields))
    new = FunctionType(code, constructor.__globals__, "__new__", tuple(defaults.values()))
    new.__qualname__ = f"{name}.__new__"  # in the message of a wrong call
    getters = {field: like.__dict__[f"field_{number}"] for number, field in enumerate(fields)}
    of_the_library = {
        "__doc__": f"{name}({', '.join(fields)})",
        "__slots__": (),
        "__match_args__": fields,
        "__new__": new,
        "_fields": fields,
        "_field_defaults": defaults,
    }
    return type(name, (_Methods, *others), of_the_library | body | getters)


class _Declared(type):
    """The metaclass of ``NamedTuple`` alone; what is declared with it is of class ``type``."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(mcs, name, bases, body)
        if "__annotations__" not in body:  # Python 3.14 evaluates them when asked, if they are no texts
            return new_class(
                name, (TypingNamedTuple, *bases[1:]), exec_body=lambda namespace: namespace.update(body)
            )
        return _declare(name, bases[1:], body)


if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class NamedTuple(metaclass=_Declared):
        """The base of a class with fields, as in ``typing``."""
