"""Everything that is fuzzed, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import security, settings, state, storage, wire

TARGETS: Final[dict[str, Target]] = {
    target.name: target for module in (wire, storage, state, security, settings) for target in module.TARGETS
}
