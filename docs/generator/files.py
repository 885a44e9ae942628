"""What is generated, and where it lies."""

from __future__ import annotations

from pathlib import Path

from docs.generator.ablations import ablations
from docs.generator.cli import cli
from docs.generator.configuration import configuration
from docs.generator.kafka_properties import kafka_properties_page
from docs.generator.kafka_tools import kafka_tools
from docs.generator.metrics import metrics
from docs.generator.performance import performance

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "reference"


def files() -> dict[Path, str]:
    """The text of each generated file."""
    return {
        REFERENCE / "ablations.md": ablations(),
        REFERENCE / "cli.md": cli(),
        REFERENCE / "configuration.md": configuration(),
        REFERENCE / "kafka-properties.md": kafka_properties_page(),
        REFERENCE / "kafka-tools.md": kafka_tools(),
        REFERENCE / "metrics.md": metrics(),
        REFERENCE / "performance.md": performance(),
    }
