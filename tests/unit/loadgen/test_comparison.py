"""Ratios of two targets that took turns, and their spread."""

from __future__ import annotations

from minikafka.loadgen.comparison import lines, row, spread


def test_a_ratio_is_of_neighbours_so_a_drifting_machine_does_not_matter() -> None:
    drift = [1.0, 0.5, 0.25, 0.8, 0.6]
    found = row(
        "produce", "rate", "records/s", [200 * each for each in drift], [100 * each for each in drift]
    )
    assert found.ratio is not None and found.first is not None
    assert (found.ratio.median, found.ratio.least, found.ratio.greatest) == (2, 2, 2)
    assert found.first.least == 50 and found.first.greatest == 200


def test_a_turn_that_failed_makes_no_ratio() -> None:
    found = row("produce", "rate", "records/s", [10, None, 30], [5, 5, None])
    assert found.ratio is not None and found.ratio.median == 2
    assert (found.first_values, found.second_values) == ([10, 30], [5, 5])
    nothing = row("produce", "rate", "records/s", [None], [5])
    assert nothing.first is None and nothing.ratio is None
    assert lines([nothing], ("a", "b"))[2] == "| produce: rate, records/s | failed | 5 | – | – |"


def test_the_interval_lies_within_what_was_seen_and_is_the_same_each_time() -> None:
    values = [1.0, 1.1, 0.9, 1.3, 1.05, 0.7, 1.2]
    found = spread(values)
    assert found == spread(values) and found is not None
    assert found.least <= found.low <= found.median <= found.high <= found.greatest
    assert found.low < found.high


def test_a_table_has_the_targets_as_columns() -> None:
    table = lines([row("w", "p99", "ms", [1.0, 2.0], [2.0, 4.0])], ("minikafka", "mock"))
    assert table[0].startswith("| workload | minikafka | mock | ratio")
    assert table[2] == "| w: p99, ms | 1.5 | 3 | 0.5 (0.5 – 0.5) | 0.5 – 0.5 |"
