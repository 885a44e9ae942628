"""Schemas out of a schema registry, by Confluent's HTTP API, which Karapace and Apicurio have, too.

A schema is named by its URL: ``http://registry:8081/subjects/orders-value`` (the newest version), with
``/versions/3``, or ``/schemas/ids/7``. It is fetched once, at the start, and is the one by which every record
is read: an Avro record that was written with another may not decode, and then goes the way of such records.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from minikafka.spark.export.decoding import Format, Kind
from minikafka.spark.runtime.session import JobError

TIMEOUT_S = 10.0
SCHEMA_BYTES_MAX = 16 * 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUFFIX = {Kind.AVRO: ".avsc", Kind.JSON: ".json", Kind.PROTOBUF: ".proto"}
_SUBJECT = re.compile(r"/subjects/[^/]+/?$")


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
    path = directory / f"{name}{_SUFFIX[wanted.kind]}"
    path.write_text(text, encoding="utf-8")
    return Format(wanted.kind, f"{path}{sharp}{message}")


def fetch_schema(url: str, kind: Kind) -> str:
    """The text of a schema.

    Raises:
        JobError: the registry does not answer, has no such schema, or one of another kind.
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
        with error:
            raise JobError(f"the schema {shown}: the registry answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise JobError(f"the schema {shown}: {getattr(error, 'reason', None) or error}") from None
    except ValueError as error:
        raise JobError(f"the schema {shown}: the answer is not a registry's: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise JobError(f"the schema {shown}: the answer is not a registry's: it has no schema")
    given = str(found.get("schemaType", "AVRO")).lower()
    if given != kind:
        raise JobError(f"the schema {shown} is {given}, and the format {kind}")
    if found.get("references"):
        raise JobError(f"the schema {shown} refers to others: give it as one file")
    return str(found["schema"])
