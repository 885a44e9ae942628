"""What the console's pages have in common: questions with bounds, refusals with a status, answers as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from minikafka.cli.shared.commands import CommandError, explain
from minikafka.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.server.http.server import HttpResponse

JSON: Final = "application/json"
LIST_LIMIT: Final = 200
LIST_LIMIT_MAX: Final = 1_000
"""Rows of any list; what is more is counted in ``left_out``."""
NAME_LENGTH_MAX: Final = 1_000
"""Characters of a name or filter: longer than any of Kafka's, but a client id may have 32 k."""
NUMBER_DIGITS_MAX: Final = 19

HEADERS: Final = (
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)

_STATUS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.INVALID_GROUP_ID: 400,
    ErrorCode.OFFSET_OUT_OF_RANGE: 400,
    ErrorCode.UNSUPPORTED_VERSION: 400,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: 409,
}
"""Any other error of a broker is a 502: the question was right, the cluster could not answer it."""

Row = TypeVar("Row")

Loaded = TypeVar("Loaded")


class Refusal(MinikafkaError):
    """The answer is not what was asked for but a line of text, with a status of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def json_response(document: Any) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(document), content_type=JSON, headers=HEADERS)


def refusal_response(error: MinikafkaError) -> HttpResponse:
    """Also of what brokers and the command line's modules raise."""
    match error:
        case Refusal():
            status, why = error.status, str(error)
        case KafkaError():
            status, why = _STATUS.get(error.code, 502), explain(error)
        case CommandError():
            status, why = 400, str(error)
        case _:
            status, why = 502, str(error)
    return HttpResponse.text(why, status=status)._replace(headers=HEADERS)


def why_not(error: KafkaError | BrokerUnavailable) -> str:
    """Why one broker has not told something."""
    return explain(error) if isinstance(error, KafkaError) else str(error)


class Query:
    """The arguments of a question. Each method raises Refusal (400) for one that is no good."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __repr__(self) -> str:
        return f"Query({dict(self._values)})"

    def text(self, name: str, default: str = "", *, length_max: int = NAME_LENGTH_MAX) -> str:
        value = self._values.get(name, default)
        if len(value) > length_max:
            raise Refusal(400, f"{name} is longer than {length_max} characters")
        return value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise Refusal(400, f"{name} is missing")
        return value

    def optional(self, name: str) -> str | None:
        """None where it is missing or empty."""
        return self.text(name) or None

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int) -> int:
        text = self.text(name)
        if not text and default is not None:
            return default
        return parse_number(name, text, least=least, most=most)

    def limit(self, default: int = LIST_LIMIT) -> int:
        return self.number("limit", default, least=1, most=LIST_LIMIT_MAX)

    def order(self, columns: Collection[str]) -> tuple[str, bool] | None:
        """``sort``: the column that a list is sorted by, and whether the largest come first (``-column``);
        None: the list's own order."""
        text = self.text("sort")
        if not text:
            return None
        column = text.removeprefix("-")
        if column not in columns:
            raise Refusal(
                400, f"sort: must be one of {', '.join(sorted(columns))}, with a - the largest first"
            )
        return column, text.startswith("-")

    def flag(self, name: str) -> bool:
        text = self.text(name, "false")
        if text not in ("true", "false"):
            raise Refusal(400, f"{name}: must be true or false")
        return text == "true"


def in_order(rows: Iterable[Row], value: Callable[[Row], Any], *, is_descending: bool) -> list[Row]:
    """Sorted by a value; those whose value is not known (None) are last either way."""
    found = list(rows)
    known = [each for each in found if value(each) is not None]
    known.sort(key=value, reverse=is_descending)
    return known + [each for each in found if value(each) is None]


def parse_number(name: str, text: str, *, least: int = 0, most: int) -> int:
    """Raises Refusal: it is none, or out of bounds."""
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_DIGITS_MAX
    if not is_number or not least <= int(text) <= most:
        raise Refusal(400, f"{name}: must be a number from {least} to {most}")
    return int(text)


class Shared(Generic[Loaded]):
    """What many ask for at once is loaded once, and kept for a while: at least ``keep_s``, and as long as
    makes loading take at most ``BUSY_SHARE`` of the time."""

    BUSY_SHARE: Final = 0.1

    def __init__(self, load: Callable[[], Awaitable[Loaded]], *, keep_s: float) -> None:
        self._load = load
        self._keep_s = keep_s
        self._lock = asyncio.Lock()
        self._found: Loaded | None = None
        self._until_s = 0.0

    def __repr__(self) -> str:
        return f"Shared({self._load}, keep_s={self._keep_s})"

    async def get(self) -> Loaded:
        """Raises what ``load`` raises, which is not kept."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._found is None or loop.time() >= self._until_s:
                began_s = loop.time()
                self._found = await self._load()
                ended_s = loop.time()
                self._until_s = ended_s + max(self._keep_s, (ended_s - began_s) / self.BUSY_SHARE)
            return self._found

    def forget(self) -> None:
        """Something has been changed: the next one to ask gets it as it is now."""
        self._until_s = 0.0


class SharedByQuery:
    """The same for answers to questions with arguments: those to the last ``QUESTIONS_MAX`` are kept."""

    QUESTIONS_MAX: Final = 32

    def __init__(
        self, answer: Callable[[Query], Awaitable[Any]], *, names: Sequence[str], keep_s: float
    ) -> None:
        """``names``: of the arguments that there are; others make no difference."""
        self._answer = answer
        self._names = names
        self._keep_s = keep_s
        self._shared: dict[tuple[str, ...], Shared[Any]] = {}
        """The one that was asked last is the last."""

    def __repr__(self) -> str:
        return f"SharedByQuery({self._answer}, {len(self._shared)} kept)"

    async def get(self, query: Query) -> Any:
        """Raises what ``answer`` raises, which is not kept."""
        key = tuple(query.text(name) for name in self._names)
        shared = self._shared.pop(key, None)
        if shared is None:
            shared = Shared(lambda: self._answer(query), keep_s=self._keep_s)
        self._shared[key] = shared
        while len(self._shared) > self.QUESTIONS_MAX:
            del self._shared[next(iter(self._shared))]
        return await shared.get()
