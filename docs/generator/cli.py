"""The page of all commands and their options.

It is made from the parsers' actions, not from their help texts: these differ with the version of Python and
the width of the terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs.generator.markdown import code, page, table, text
from minikafka.cli import broker
from minikafka.cli.cluster.command import subcommand_parsers
from minikafka.cli.main import SUBCOMMANDS, load


def cli() -> str:
    """The page's text."""
    blocks = []
    for name, (module, _) in SUBCOMMANDS.items():
        blocks.append(f"## minikafka {name}")
        if name == "broker":
            blocks.append("The same as [minikafka-broker](#minikafka-broker).")
            continue
        blocks.extend(_command(load(module).parser()))
        if name == "cluster":
            for action, parser in subcommand_parsers().items():
                blocks.extend((f"### minikafka cluster {action}", *_command(parser)))
    return page(
        "Command line",
        "`bin/minikafka` and `bin/minikafka-broker` in a checkout, `minikafka` and `minikafka-broker` where "
        "the package is installed. Every command has `--help`.",
        "## minikafka-broker",
        *_command(broker.parser()),
        *blocks,
    )


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What a command is for, its options, and those of its subcommands."""
    if parser.description:
        yield text(parser.description % {"prog": parser.prog})
    rows = []
    subcommands: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subcommands |= action.choices
        elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            rows.append((code(_spelled(action)), text(_help(action, parser))))
    if rows:
        yield table(("argument", "meaning"), rows)
    for name, subcommand in subcommands.items():
        yield f"### {parser.prog} {name}"
        yield from _command(subcommand)


def _spelled(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return f"{value}..." if action.nargs in ("+", "*") else value


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    meaning = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"{meaning} (required)" if action.required and action.option_strings else meaning
