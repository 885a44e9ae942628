"""Where the Iceberg or Delta table of a topic is: the options that say it, the same for each command.

What finds a table, pyiceberg or delta-rs, is imported when it is opened, so that commands that may open one
start as fast as others.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from minikafka.cli.shared.commands import CommandError

if TYPE_CHECKING:
    from minikafka.spark.tables.table import Tables

ICEBERG, DELTA = FORMATS = ("iceberg", "delta")


class _Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, metavar: str, help: str) -> argparse.Action: ...


def add_output_option(options: _Options) -> None:
    """``--output``."""
    options.add_argument(
        "--output",
        "-o",
        metavar="DIR",
        help="a directory, or a URI (Parquet s3a://, tables s3://); of Iceberg the warehouse, where the "
        "catalog has none",
    )


def add_catalog_options(options: _Options) -> None:
    """``--catalog`` and ``--namespace``."""
    options.add_argument(
        "--catalog",
        metavar="[NAME=]URI",
        help="Iceberg: the catalog, by its name in pyiceberg's configuration or as a URI: http://… (REST), "
        "thrift://… (Hive), sqlite:///…, postgresql://…",
    )
    options.add_argument("--namespace", metavar="NAME", help="Iceberg: of the tables (kafka)")


def misplaced(given: argparse.Namespace) -> str | None:
    """What is wrong with the options together, of which ``given.format`` says whether it is a table at all;
    None: nothing."""
    if given.format == ICEBERG and not given.catalog:
        return "--format iceberg needs --catalog, such as sqlite:////lake/catalog.db"
    if given.format == DELTA and (given.catalog or given.namespace):
        return "a Delta table is a directory: --output says where, and there is no catalog"
    if given.format != ICEBERG and not given.output:
        return "the following arguments are required: --output/-o"
    return None


def open_tables(given: argparse.Namespace, *, is_read_only: bool = False) -> Tables:
    """The tables that the options name. ``is_read_only``: no catalog or namespace is made.

    Raises:
        MinikafkaError: a library is not installed, or the catalog cannot be used.
    """
    if find_spec("pyspark") is None:
        raise CommandError("pyspark is not installed: pip install 'minikafka[tables]'")
    if given.format == DELTA:
        from minikafka.spark.tables.delta import DeltaTables

        return DeltaTables(given.output)
    from minikafka.spark.tables.iceberg import NAMESPACE, IcebergTables

    return IcebergTables(
        given.catalog,
        warehouse=given.output,
        namespace=given.namespace or NAMESPACE,
        is_read_only=is_read_only,
    )
