"""``NamedTuple`` is that of ``typing``, only cheaper: whatever is asked of the two has one answer."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest

import minikafka
from minikafka.named_tuple import NamedTuple

T = TypeVar("T")

PACKAGE = Path(minikafka.__file__).parent
BESIDE_THE_BROKER = ("cli", "loadgen", "spark", "testing")


class Ours(NamedTuple):
    """A batch."""

    topic: str
    partition: int | None
    offsets: tuple[int, ...] = ()
    epoch: int = -1

    @property
    def is_known(self) -> bool:
        return self.epoch >= 0

    @classmethod
    def of(cls, topic: str) -> Ours:
        return cls(topic, 0)

    def next(self) -> Ours:
        return self._replace(epoch=self.epoch + 1)


class Theirs(typing.NamedTuple):
    """A batch."""

    topic: str
    partition: int | None
    offsets: tuple[int, ...] = ()
    epoch: int = -1

    @property
    def is_known(self) -> bool:
        return self.epoch >= 0

    @classmethod
    def of(cls, topic: str) -> Theirs:
        return cls(topic, 0)

    def next(self) -> Theirs:
        return self._replace(epoch=self.epoch + 1)


class OurPair(NamedTuple, Generic[T]):
    key: str
    value: T


class TheirPair(typing.NamedTuple, Generic[T]):
    key: str
    value: T


class OursWithoutFields(NamedTuple):
    pass


class TheirsWithoutFields(typing.NamedTuple):
    pass


class OurSubclass(Ours):
    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class TheirSubclass(Theirs):
    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def matched(value: Any, kind: type[Any]) -> Any:
    match value:
        case kind(topic, partition, offsets=offsets):
            return topic, partition, offsets
    raise AssertionError(value)


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "by position": lambda kind: tuple(kind("t", 1, (5,), 2)),
    "by name": lambda kind: tuple(kind(partition=1, topic="t")),
    "too few": lambda kind: kind("t"),
    "too many": lambda kind: kind("t", 1, (), 2, 3),
    "unknown name": lambda kind: kind("t", 1, leader=2),
    "twice": lambda kind: kind("t", 1, topic="u"),
    "shown": lambda kind: repr(kind("t", None)),
    "as text": lambda kind: f"{kind('t', 1)}",
    "fields": lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__),
    "attributes": lambda kind: [getattr(kind("t", 1, (7,)), name) for name in kind._fields],
    "set": lambda kind: setattr(kind("t", 1), "topic", "u"),
    "set another": lambda kind: setattr(kind("t", 1), "leader", 1),
    "no dictionary": lambda kind: hasattr(kind("t", 1), "__dict__"),
    "as a dictionary": lambda kind: kind("t", 1)._asdict(),
    "replaced": lambda kind: tuple(kind("t", 1)._replace(topic="u", epoch=4)),
    "replaced what is not there": lambda kind: kind("t", 1)._replace(leader=4),
    "made": lambda kind: tuple(kind._make(iter(("t", 1, (), 3)))),
    "made of too few": lambda kind: kind._make(("t", 1)),
    "a tuple": lambda kind: (isinstance(kind("t", 1), tuple), kind("t", 1) == ("t", 1, (), -1)),
    "as a key": lambda kind: {("t", 1, (), -1): "found"}[kind("t", 1)],
    "in order": lambda kind: [tuple(each) for each in sorted([kind("t", 2), kind("s", 3), kind("t", 1)])],
    "unpacked": lambda kind: [*kind("t", 1)],
    "matched": lambda kind: matched(kind("t", 1, (2,)), kind),
    "properties and methods": lambda kind: (kind.of("t").is_known, tuple(kind.of("t").next())),
    "copied": lambda kind: type(copy.deepcopy(kind("t", 1))) is kind,
    "pickled": lambda kind: [pickle.loads(pickle.dumps(kind("t", 1), n)) == kind("t", 1) for n in range(6)],
    "of its kind": lambda kind: type(pickle.loads(pickle.dumps(kind("t", 1)))) is kind,
    "to JSON": lambda kind: msgspec.json.encode(kind("t", 1)),
    "from JSON": lambda kind: tuple(msgspec.json.decode(b'["t", 1, [3], 2]', type=kind)),
    "from bad JSON": lambda kind: msgspec.json.decode(b'["t", "u"]', type=kind),
    "types": lambda kind: typing.get_type_hints(kind),
    "signature": lambda kind: list(inspect.signature(kind).parameters),
    "what it is for": lambda kind: (kind.__doc__, kind.topic.__doc__, kind.__module__),
    "class": lambda kind: type(kind),
    "size": lambda kind: sys.getsizeof(kind("t", 1)),
}


def answer(question: Callable[[Any], Any], kind: type[Any]) -> Any:
    try:
        given = question(kind)
    except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
        given = f"{type(error).__name__}: {error}"
    return given.replace("Theirs", "Ours").replace("Their", "Our") if isinstance(given, str) else given


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(("ours", "theirs"), [(Ours, Theirs), (OurSubclass, TheirSubclass)])
def test_it_answers_as_that_of_typing(name: str, ours: type[Any], theirs: type[Any]) -> None:
    assert answer(QUESTIONS[name], ours) == answer(QUESTIONS[name], theirs)


@pytest.mark.parametrize("kind", [OurPair, TheirPair])
def test_a_generic_one_takes_arguments(kind: Any) -> None:
    assert kind[int]("a", 1) == ("a", 1)
    assert kind("a", 1)._replace(value=2).value == 2
    assert kind.__parameters__ == (T,)


@pytest.mark.parametrize("kind", [OursWithoutFields, TheirsWithoutFields])
def test_one_without_fields_is_the_empty_tuple(kind: Any) -> None:
    assert kind() == ()
    assert kind._fields == ()


@pytest.mark.parametrize("base", ["minikafka.named_tuple", "typing"])
def test_a_field_without_a_default_comes_first(base: str) -> None:
    source = f"from {base} import NamedTuple\nclass Batch(NamedTuple):\n    a: int = 1\n    b: int\n"
    with pytest.raises(TypeError):
        exec(source, {"__name__": "source"})


def test_fields_that_are_no_texts_do_too() -> None:
    """In a module without ``from __future__ import annotations``."""
    source = (
        "from minikafka.named_tuple import NamedTuple\nclass Batch(NamedTuple):\n    a: int\n    b: int = 2\n"
    )
    program = f"{source}assert repr(Batch(1)) == 'Batch(a=1, b=2)'\n"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_whatever_a_broker_loads_declares_them_so() -> None:
    """One of ``typing`` costs 0.2 ms of every start."""
    others = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in (*BESIDE_THE_BROKER, "named_tuple.py")
        and re.search(r"^from typing import .*\bNamedTuple\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert others == set()
