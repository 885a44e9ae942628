"""What an attack is, and how one is run beside a bystander.

Each module in ``tests/hostile/attacks`` has ``ATTACKS``, a list of them; ``test_attacks`` runs all of them in
short form, ``bin/bench hostile`` in full and with times. An attack touches nothing but the broker that it is
given: its port, its directory, its process.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.hostile import attacks
from tests.hostile.bystander import Bystander, Report
from tests.integration.support.process import BrokerProcess


@dataclass(frozen=True)
class Attack:
    """One way to stop a broker for everybody, and what has to come of it instead."""

    name: str
    """As in "20 KB regular expression": a sentence's subject, unique."""
    run: Callable[[BrokerProcess, bool], str]
    """``run(broker, short)`` attacks, asserts what the attacker gets, and says in a few words what that was.
    ``short`` is for CI: the same attack, about a second long."""
    properties: Mapping[str, object] = field(default_factory=dict)
    """Of the broker that is attacked."""
    prepare: Callable[[BrokerProcess, bool], None] | None = None
    """What has to be there first, made before the bystander begins."""
    descriptors_max: int | None = None
    """RLIMIT_NOFILE of the broker's process."""
    port: int | None = None
    """Of the listener that the bystander uses, where ``properties`` names the listeners."""


class Outcome(NamedTuple):
    said: str
    bystander: Report


def all_attacks() -> list[Attack]:
    """Those of all modules, in the order of their names. Raises AssertionError when two have one name."""
    found = [
        attack
        for module in sorted(pkgutil.iter_modules(attacks.__path__), key=lambda module: module.name)
        for attack in importlib.import_module(f"tests.hostile.attacks.{module.name}").ATTACKS
    ]
    names = [attack.name for attack in found]
    assert len(set(names)) == len(names), "two attacks have one name"
    return found


def run_beside_bystander(attack: Attack, broker: BrokerProcess, *, short: bool) -> Outcome:
    """Attack a running broker while a bystander writes to it."""
    if attack.prepare is not None:
        attack.prepare(broker, short)
    with Bystander(broker) as bystander:
        said = attack.run(broker, short)
    return Outcome(said, bystander.report)
