"""``minikafka-broker`` without the fast paths that the variable ``WITHOUT`` names
(``runtime.fast_paths``).
"""

from __future__ import annotations

import os
import sys

from minikafka.cli.broker import main
from minikafka.server.runtime.fast_paths import SWITCHED_OFF, FastPath

if __name__ == "__main__":
    SWITCHED_OFF.update(map(FastPath, os.environ["WITHOUT"].split()))
    sys.exit(main())
