"""S3 as the environment describes it, in what each library takes.

Amazon's tools, Spark's connector and others read the same variables: ``AWS_ENDPOINT_URL_S3`` or
``AWS_ENDPOINT_URL`` for a store that is not Amazon's, ``AWS_REGION`` or ``AWS_DEFAULT_REGION``. Of the
libraries here pyarrow and pyiceberg read no endpoint, and delta-rs talks to none by http unless it is told
to. Keys are no business of this module: each library finds them itself, in the environment
(``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``), in a profile or as a machine's
role.

Without an endpoint the libraries do as they do: each asks Amazon for the region of a bucket.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import pyarrow.fs

ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Amazon's order: that of the service counts more."""
REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION: Final = "us-east-1"
"""Of stores that have no regions, which all take this one."""
SCHEMES: Final = ("s3://", "s3a://", "s3n://")


class Endpoint(NamedTuple):
    """A store that is not Amazon's, or a private way to it."""

    url: str
    """``http://minio:9000``."""
    region: str

    @property
    def is_plain(self) -> bool:
        return self.url.startswith("http://")


def is_s3(place: str) -> bool:
    """Whether a path or URI is in S3."""
    return place.lower().startswith(SCHEMES)


def endpoint() -> Endpoint | None:
    """Raises ValueError: the variable is no URL of a server."""
    for name in ENDPOINT_VARIABLES:
        text = os.environ.get(name, "").rstrip("/")
        if not text:
            continue
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
            raise ValueError(f"{name} must be a URL such as http://minio:9000")
        if "@" in parts.netloc:
            raise ValueError(f"{name} must have no login: keys are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
        regions = filter(None, map(os.environ.get, REGION_VARIABLES))
        return Endpoint(text, next(regions, DEFAULT_REGION))
    return None


def open_uri(uri: str, there: Endpoint | None = None) -> tuple[pyarrow.fs.FileSystem, str]:
    """pyarrow's file system of a URI, and the path in it.

    Args:
        uri: what stands behind a ``?`` counts more than the environment.
        there: the endpoint; None: the environment's.

    Raises:
        ValueError, OSError, pyarrow.ArrowException: there is no such store.
    """
    if not is_s3(uri):
        system, path = pyarrow.fs.FileSystem.from_uri(uri)
        return system, path
    place, _, settings = uri.partition("://")[2].partition("?")
    there = there or endpoint()
    if there is not None and "endpoint_override=" not in settings:
        parts = urlsplit(there.url)
        given = [settings, f"endpoint_override={quote(parts.netloc)}", f"scheme={parts.scheme}"]
        if "region=" not in settings:
            given.append(f"region={quote(there.region)}")
        settings = "&".join(filter(None, given))
    system, path = pyarrow.fs.FileSystem.from_uri(f"s3://{place}?{settings}".rstrip("?"))
    return system, path


def iceberg_properties() -> dict[str, str]:
    """For pyiceberg's file systems. Raises ValueError."""
    there = endpoint()
    return {} if there is None else {"s3.endpoint": there.url, "s3.region": there.region}


def delta_options(root: str) -> dict[str, str] | None:
    """delta-rs' storage options for a table there; None: it needs none. Raises ValueError."""
    there = endpoint() if is_s3(root) else None
    if there is None:
        return None
    options = {"aws_endpoint": there.url, "aws_region": there.region}
    return options | {"aws_allow_http": "true"} if there.is_plain else options
