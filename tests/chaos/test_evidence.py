"""An anomaly is told with what its files have to say, whatever is left of them."""

from __future__ import annotations

from pathlib import Path

from minikafka.protocol.records.records import Record as LogRecord
from minikafka.protocol.records.records import build_batch
from minikafka.testing.history import Kind, Operation, Outcome, Record
from tests.chaos.evidence import evidence

PRODUCER = "producer-5-confluent-transactional"
VALUE = f"{PRODUCER}-25"


def test_the_batches_of_all_replicas_and_what_the_producer_did(tmp_path: Path) -> None:
    replicas = [tmp_path / f"broker-{number}" / "transactions-0" for number in (1, 2)]
    for epoch, at in enumerate(replicas):
        at.mkdir(parents=True)
        batch = build_batch(
            [LogRecord(34, 0, None, b"x")], producer_id=9, producer_epoch=epoch, base_sequence=3
        )
        (at / f"{34:020}.log").write_bytes(batch)
    (replicas[1] / f"{99:020}.log").write_bytes(b"no batch" * 20)
    (tmp_path / f"{PRODUCER}.err").write_text("begins again after a while\n")
    operations = [
        Operation(
            process="producer-5-confluent-transactional", kind=Kind.BEGIN, invoked_ms=10, transaction="t"
        ),
        Operation(
            process=f"{PRODUCER}.6",
            kind=Kind.SEND,
            invoked_ms=20,
            completed_ms=30,
            outcome=Outcome.OK,
            records=(Record("transactions", 0, 34, VALUE),),
        ),
        Operation(process="producer-6-kgo-plain", kind=Kind.BEGIN, invoked_ms=25),
        Operation(process=f"{PRODUCER}.7", kind=Kind.BEGIN, invoked_ms=9_000),
    ]
    told = list(
        evidence([f"dirty commit: {VALUE}, acknowledged at 34 of transactions-0"], operations, tmp_path)
    )
    text = "\n".join(told)
    assert "broker-1: 0 to 34, records, leader epoch -1, producer 9, epoch 0, sequence 3" in text
    assert "producer 9, epoch 1, sequence 3" in text
    assert f"{99:020}.log" in text, "a log that cannot be read is named"
    assert sum(PRODUCER in line and " ms " in line for line in told) == 2
    assert "kgo" not in text
    assert told[-1] == "  begins again after a while"
