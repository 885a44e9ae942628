"""What is generated, and where it lies."""

from __future__ import annotations

from pathlib import Path

from grafana.generator.dashboards import DASHBOARDS as BOARDS
from grafana.generator.rules import rules

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = ROOT / "dashboards"
RULES = ROOT / "prometheus" / "rules.yml"


def files() -> dict[Path, str]:
    """The text of each generated file."""
    texts = {DASHBOARDS / f"{board.name}.json": board.to_json() for board in BOARDS}
    return texts | {RULES: rules()}
