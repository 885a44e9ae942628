"""``minikafka features``: the levels of a cluster's features, and how to change them (KIP-584).

Kafka: ``kafka-features.sh`` (``FeatureCommand``), its actions and its output; different: the actions
``version-mapping`` and ``feature-dependencies``, and the option ``--release-version``, which look into
Kafka's own tables and not at a cluster, are left to it.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import msgspec

from minikafka import __version__
from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    error_of,
    explain,
    run,
    take_connection,
    with_action_first,
)
from minikafka.config.definition import SHORT_MAX
from minikafka.errors import KafkaError
from minikafka.protocol.wire.api_versions import OWN_SOFTWARE, ApiKey

PROG = "minikafka features"
ACTIONS = ("describe", "upgrade", "downgrade", "disable")

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""``FeatureUpdate.UpgradeType``."""

_DONE = {"upgrade": "upgraded to {}", "downgrade": "downgraded to {}", "disable": "disabled"}


class Feature(msgspec.Struct, frozen=True):
    """A feature, as a broker has it."""

    name: str
    min_level: int
    max_level: int
    level: int
    """At which the cluster stands; 0: it is switched off."""
    epoch: int


class FeatureAdmin(AdminClient):
    """Methods raise KafkaError for what a broker refuses, and BrokerUnavailable when there is no answer."""

    async def features(self, node_id: int | None) -> list[Feature]:
        """What a broker supports, any where none is named, and where the cluster stands; sorted by name."""
        body = {
            "client_software_name": OWN_SOFTWARE,
            "client_software_version": __version__,
            "cluster_id": None,
            "node_id": -1,
        }
        if node_id is None:
            answer = await self.ask_any(ApiKey.API_VERSIONS, body)
        else:
            answer = await self.ask_broker(node_id, ApiKey.API_VERSIONS, body)
        raise_error(answer)
        levels = {each.name: int(each.max_version_level) for each in answer.finalized_features}
        return [
            Feature(
                each.name,
                int(each.min_version),
                int(each.max_version),
                levels.get(each.name, 0),
                int(answer.finalized_features_epoch),
            )
            for each in sorted(answer.supported_features, key=lambda each: str(each.name))
        ]

    async def update(
        self, levels: Mapping[str, int], upgrade_type: int, *, validate_only: bool
    ) -> dict[str, KafkaError]:
        """Change the levels. Returns why features were refused; a broker that changes all or none says it of
        all."""
        body = {
            "timeout": self.timeout_ms,
            "feature_updates": [
                {
                    "feature": name,
                    "max_version_level": level,
                    "allow_downgrade": upgrade_type != UPGRADE,
                    "upgrade_type": upgrade_type,
                }
                for name, level in levels.items()
            ],
            "validate_only": validate_only,
        }
        answer = await self.ask_any(ApiKey.UPDATE_FEATURES, body)
        refused = error_of(answer.error_code, answer.error_message)
        if refused is not None:
            return dict.fromkeys(levels, refused)
        return {
            each.feature: error
            for each in getattr(answer, "results", ())
            if (error := error_of(each.error_code, each.error_message)) is not None
        }


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka features``."""
    options = ProfileParser(
        prog=PROG,
        description="Features of a cluster, and the level at which each stands. The options of "
        "kafka-features.sh.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = actions.add_parser("describe", help="levels that there are and that hold", allow_abbrev=False)
    describe.add_argument("--node-id", type=int, metavar="ID", help="ask this broker (default: any)")
    describe.add_argument("--json", action="store_true", help="print JSON")
    upgrade = actions.add_parser("upgrade", help="raise levels", allow_abbrev=False)
    downgrade = actions.add_parser("downgrade", help="lower levels", allow_abbrev=False)
    disable = actions.add_parser("disable", help="switch features off: level 0", allow_abbrev=False)
    for each in (upgrade, downgrade):
        each.add_argument(
            "--feature",
            action="append",
            required=True,
            metavar="NAME=LEVEL",
            help="this feature, to this level; may be repeated",
        )
    disable.add_argument(
        "--feature", action="append", required=True, metavar="NAME", help="this feature; may be repeated"
    )
    for each in (downgrade, disable):
        each.add_argument(
            "--unsafe", action="store_true", help="also where what the cluster knows may be lost by it"
        )
    for each in (upgrade, downgrade, disable):
        each.add_argument("--dry-run", action="store_true", help="only say whether it could be done")
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        take_connection(arguments)
        if arguments.action != "describe":
            arguments.levels = levels_of(arguments.feature, has_levels=arguments.action != "disable")
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


def levels_of(texts: Sequence[str], *, has_levels: bool) -> dict[str, int]:
    """Feature → level of ``NAME=LEVEL``, or of ``NAME`` for 0.

    Raises:
        ValueError: not of that form, or named twice.
    """
    levels: dict[str, int] = {}
    for text in texts:
        name, separator, level = text.partition("=")
        if bool(separator) != has_levels or not name.strip():
            raise ValueError(f"--feature {text}: must be {'NAME=LEVEL' if has_levels else 'NAME'}")
        if has_levels and not (level.isascii() and level.isdigit() and int(level[:6]) <= SHORT_MAX):
            raise ValueError(f"--feature {text}: the level must be a number from 0 to {SHORT_MAX}")
        if name in levels:
            raise ValueError(f"--feature {text}: {name} is named twice")
        levels[name] = int(level or 0)
    return levels


async def _run(arguments: argparse.Namespace) -> int:
    async with FeatureAdmin.of(arguments, "minikafka-features") as admin:
        if arguments.action == "describe":
            return await _describe(admin, arguments)
        return await _update(admin, arguments)


async def _describe(admin: FeatureAdmin, arguments: argparse.Namespace) -> int:
    features = await admin.features(arguments.node_id)
    if arguments.json:
        print(as_json(features))
        return OK
    for each in features:
        print(
            f"Feature: {each.name:<40}  SupportedMinVersion: {each.min_level:<15}  "
            f"SupportedMaxVersion: {each.max_level:<15}  FinalizedVersionLevel: {each.level:<15}  "
            f"Epoch: {each.epoch}"
        )
    return OK


async def _update(admin: FeatureAdmin, arguments: argparse.Namespace) -> int:
    action, levels = arguments.action, arguments.levels
    upgrade_type = UPGRADE
    if action != "upgrade":
        upgrade_type = UNSAFE_DOWNGRADE if arguments.unsafe else SAFE_DOWNGRADE
    refused = await admin.update(levels, upgrade_type, validate_only=arguments.dry_run)
    can, could_not = ("can be", "can not") if arguments.dry_run else ("was", "could not")
    for name, level in levels.items():
        if name not in refused:
            print(f"{name} {can} {_DONE[action].format(level)}.")
            continue
        what = action if action == "disable" else f"{action} to {level}"
        print(f"{PROG}: {name}: {could_not} {what}: {explain(refused[name])}", file=sys.stderr)
    return FAILURE if refused else OK


if __name__ == "__main__":
    sys.exit(main())
