"""``python -m minikafka.testing.history FILE…``: print the anomalies of each history.

Exit status 1 when there is one that Kafka does not permit, 2 when a file cannot be judged.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from minikafka.testing.history.checker import check
from minikafka.testing.history.operations import HistoryError, read_history


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minikafka.testing.history", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help="a history as JSON lines")
    gc.disable()  # a history has no cycles, and a million operations take twice as long with it
    is_valid = True
    for path in parser.parse_args().files:
        try:
            report = check(read_history(path))
        except (HistoryError, OSError) as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        print(f"{path}: {report}")
        is_valid = is_valid and report.is_valid
    sys.exit(not is_valid)


if __name__ == "__main__":
    main()
