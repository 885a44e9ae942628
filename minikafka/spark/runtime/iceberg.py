"""Iceberg's catalogs, by pyiceberg: opened from what a command is given, their errors as one line.

A catalog is one that pyiceberg is configured for, by its name, or a URI, before which a name may stand: the
tables of an SQL database belong to a catalog's name. Where pyiceberg is not configured otherwise, S3 is
that of the environment (``s3``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from minikafka.spark.runtime.s3 import iceberg_properties
from minikafka.spark.runtime.session import JobError

_NAMED: Final = re.compile(r"(?:(?P<name>[\w-]+)=)?(?P<uri>[A-Za-z][A-Za-z0-9+.-]*://.*)", re.DOTALL)
_PASSWORD: Final = re.compile(r"//[^/@]*@")
_DEFAULT_NAME: Final = "default"
_IN_MEMORY: Final = ":memory:"


def catalog_uri(text: str) -> str | None:
    """Of ``[NAME=]URI``; None: it is the name of a catalog that pyiceberg is configured for."""
    named = _NAMED.fullmatch(text)
    return None if named is None else named["uri"]


def open_catalog(text: str, **properties: str) -> Any:
    """The catalog. Raises what pyiceberg raises, see ``iceberg_errors``."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    named = _NAMED.fullmatch(text)
    name = text if named is None else named["name"] or _DEFAULT_NAME
    configured = Config().get_catalog_config(name) or {}
    by_environment = {key: text for key, text in iceberg_properties().items() if key not in configured}
    given = properties if named is None else {"uri": named["uri"], **properties}
    return load_catalog(name, **{**by_environment, **given})


def check_catalog_file(text: str) -> None:
    """For who only reads: SQLite makes a file that is missing. Raises FileNotFoundError; what pyiceberg and
    its database raise, see ``iceberg_errors``."""
    from pyiceberg.utils.config import Config

    uri = catalog_uri(text)
    if uri is None:
        uri = str((Config().get_catalog_config(text) or {}).get("uri", ""))
    if not uri.startswith("sqlite"):
        return
    from sqlalchemy.engine import make_url

    path = make_url(uri).database
    if path and path != _IN_MEMORY and not path.startswith("file:") and not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")


def without_password(text: str) -> str:
    """A URI, or a line with one, as it may be shown."""
    return _PASSWORD.sub("//", text)


@contextmanager
def iceberg_errors(what: str) -> Iterator[None]:
    """What pyiceberg, its database, its HTTP or its Thrift client raise, as one line. Raises JobError."""
    from pyiceberg import exceptions

    found: list[type[Exception]] = [OSError, ValueError, NotImplementedError, ImportError]
    found += [each for each in vars(exceptions).values() if isinstance(each, type)]
    try:
        from sqlalchemy.exc import SQLAlchemyError

        found.append(SQLAlchemyError)
    except ImportError:  # a catalog that needs no database
        pass
    try:
        from thrift.Thrift import TException

        found.append(TException)
    except ImportError:  # a catalog that is not Hive's
        pass
    try:
        yield
    except tuple(found) as error:
        words = without_password(" ".join(str(error).split("\n")[0].split()))
        raise JobError(f"{what}: {words or type(error).__name__}") from error
