"""Schemas out of a schema registry, by Confluent's HTTP API, which Karapace and Apicurio have, too.

A schema is named by its URL: ``http://registry:8081/subjects/orders-value`` (the newest version), with
``/versions/3``, or ``/schemas/ids/7``. It is fetched once, at the start, and says what columns there are. The
schemas by which Avro's records were written are fetched when one is met, by its id, and kept: an id stands
for one schema for ever.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from minikafka.spark.export.decoding import Format, Kind, RegistryUnavailable
from minikafka.spark.runtime.session import JobError

TIMEOUT_S = 10.0
SCHEMA_BYTES_MAX = 16 * 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUFFIX = {Kind.AVRO: ".avsc", Kind.JSON: ".json", Kind.PROTOBUF: ".proto"}
_SUBJECT = re.compile(r"/subjects/[^/]+/?$")
_ROOT = re.compile(r"(?P<root>https?://.+?)/(?:subjects|schemas/ids)/")
_ASK_AGAIN = frozenset(
    {
        http.HTTPStatus.UNAUTHORIZED,
        http.HTTPStatus.FORBIDDEN,
        http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        http.HTTPStatus.REQUEST_TIMEOUT,
        http.HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Answers that say nothing of the schema. Others below 500 say that it is no schema's id: a record that has
any four bytes for it must not end the run."""
SCHEMAS_CACHED_MAX = 1000
"""In a worker; a topic has a few."""


class UnusableSchema(JobError):
    """The registry answers, and what it has is no schema to read by."""


def fetched(formats: Mapping[str | None, Format], directory: Path) -> dict[str | None, Format]:
    """The formats with files in ``directory`` in the place of URLs.

    Raises:
        JobError: a registry does not answer, or has no such schema.
    """
    return {topic: _fetched(each, directory) for topic, each in formats.items()}


def _fetched(wanted: Format, directory: Path) -> Format:
    if wanted.schema is None or not wanted.schema.startswith(("http://", "https://")):
        return wanted
    url, sharp, message = wanted.schema.partition("#")
    text = fetch_schema(url, wanted.kind)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", urlsplit(url).path).strip("-")
    path, number = directory / f"{name}{_SUFFIX[wanted.kind]}", 1
    while path.exists() and path.read_text(encoding="utf-8") != text:  # of another registry
        number += 1
        path = directory / f"{name}-{number}{_SUFFIX[wanted.kind]}"
    path.write_text(text, encoding="utf-8")
    root = _ROOT.match(url)
    return Format(wanted.kind, f"{path}{sharp}{message}", None if root is None else root["root"])


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def schema_by_id(registry: str, schema_id: int) -> str:
    """The text of the Avro schema of an id.

    Raises:
        UnusableSchema: there is none, or no Avro.
        RegistryUnavailable: the registry does not answer.
    """
    return fetch_schema(f"{registry}/schemas/ids/{schema_id}", Kind.AVRO)


def fetch_schema(url: str, kind: Kind) -> str:
    """The text of a schema.

    Raises:
        UnusableSchema: the registry has no such schema, or one of another kind.
        RegistryUnavailable: it does not answer.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/") + "/versions/latest" if _SUBJECT.search(parts.path) else parts.path
    shown = urlunsplit((parts.scheme, host, path, parts.query, ""))
    headers = {"Accept": _ACCEPT}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        request = urllib.request.Request(shown, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            found = json.loads(response.read(SCHEMA_BYTES_MAX))
    except urllib.error.HTTPError as error:
        is_away = error.code in _ASK_AGAIN or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR
        kind_of_error = RegistryUnavailable if is_away else UnusableSchema
        with error:
            raise kind_of_error(
                f"the schema {shown}: the registry answers {error.code} {error.reason}"
            ) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise RegistryUnavailable(f"the schema {shown}: {why}") from None
    except ValueError as error:
        raise RegistryUnavailable(f"the schema {shown}: the answer is not a registry's: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise RegistryUnavailable(f"the schema {shown}: the answer is not a registry's: it has no schema")
    given = str(found.get("schemaType", "AVRO")).lower()
    if given != kind:
        raise UnusableSchema(f"the schema {shown} is {given}, and the format {kind}")
    if found.get("references"):
        raise UnusableSchema(f"the schema {shown} refers to others: give it as one file")
    return str(found["schema"])
