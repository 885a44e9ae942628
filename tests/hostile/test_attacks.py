"""No single request, connection or client stops the broker for the others (times: ``bin/bench hostile``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.attack import Attack, all_attacks, run_beside_bystander
from tests.integration.support.process import BrokerProcess
from tests.integration.support.verified import assert_undamaged


@pytest.mark.parametrize("attack", [pytest.param(attack, id=attack.name) for attack in all_attacks()])
def test_bystander_is_served_during(attack: Attack, tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        properties=attack.properties,
        descriptors_max=attack.descriptors_max,
        port=attack.port,
    )
    try:
        broker.start()
        outcome = run_beside_bystander(attack, broker, short=True)
        assert broker.is_running(), broker.log_text()[-20_000:]
        assert outcome.bystander.failed == 0, f"{outcome}\n{broker.log_text()[-20_000:]}"
        assert "Traceback" not in broker.log_text(), broker.log_text()[-20_000:]
    finally:
        broker.close()
    assert_undamaged(tmp_path)
