"""No attack: what a bystander sees of a broker that is not attacked, so that the others can be read."""

from __future__ import annotations

import time

from tests.hostile.attack import Attack
from tests.integration.support.process import BrokerProcess


def nothing(broker: BrokerProcess, short: bool) -> str:
    time.sleep(1 if short else 10)
    return "nothing"


ATTACKS = [Attack("nothing", nothing)]
