"""``minikafka-broker`` as pip installs it.

What a broker imports stays. Python's garbage collector would look through it dozens of times, for nothing,
15 ms of a start. So it is off before the first import, as for ``python -m minikafka.cli.broker``, which then
turns it on when everything is there.
"""

from __future__ import annotations

import gc


def main() -> int:
    """Run a broker until a signal stops it. Returns the exit status."""
    gc.disable()
    from minikafka.cli import broker

    return broker.main()
