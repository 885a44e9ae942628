"""Where a command takes a password from, so that none must be on a command line, which every process sees.

A file that only its owner may read (``--password-file``), the variable ``MINIKAFKA_PASSWORD``, or a prompt on
a terminal, in this order. No message has a part of it.
"""

from __future__ import annotations

import argparse
import getpass
import os
import stat
import sys

from minikafka.cli.shared.commands import CommandError

VARIABLE = "MINIKAFKA_PASSWORD"
"""Not a property of brokers: ``config.loader.NOT_PROPERTIES``."""

PASSWORD_BYTES_MAX = 64 * 1024
"""A password is a line; a larger file is something else, given by mistake."""

_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO


def add_password_option(options: argparse.ArgumentParser) -> None:
    """``--password-file``."""
    options.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"where the password is; its owner alone may read it (without: {VARIABLE}, or a prompt)",
    )


def read_password(file: str | None, *, whose: str, confirms: bool = False) -> str:
    """The password from ``file``, the environment or the terminal. ``confirms``: a prompt asks twice.

    Raises:
        CommandError: there is none, it is empty, or others may read the file.
    """
    if file is not None:
        return read_password_file(file)
    password = os.environ.get(VARIABLE)
    if password is not None:
        if not password:
            raise CommandError(f"{VARIABLE} is empty")
        return password
    if not sys.stdin.isatty():
        raise CommandError(
            f"there is no password of {whose}: give --password-file, set {VARIABLE}, or ask on a terminal"
        )
    password = getpass.getpass(f"Password of {whose}: ")
    if not password:
        raise CommandError("the password is empty")
    if confirms and getpass.getpass("Again: ") != password:
        raise CommandError("the two passwords are not the same")
    return password


def read_password_file(name: str) -> str:
    """Raises CommandError: it cannot be read, is empty, or others may read it."""
    try:
        with open(name, "rb") as file:  # what is checked is what is read
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS_MAY_READ:
                raise CommandError(f"others than its owner may use {name}: chmod 600 {name}")
            data = file.read(PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror or error}") from None
    if len(data) > PASSWORD_BYTES_MAX:
        raise CommandError(
            f"{name} has more than {PASSWORD_BYTES_MAX} bytes, so it is not the file of a password"
        )
    try:
        password = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise CommandError(f"{name} is not UTF-8") from None
    if not password:
        raise CommandError(f"{name} is empty")
    return password
