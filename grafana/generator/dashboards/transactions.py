"""Transactions: how many there are, how fast they end, and what they wait for.

A transactional id has one coordinator, the leader of its partition of ``__transaction_state``. Partitions ask
it before a transaction's first batch (verification), and are told of its end by a marker.
"""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, faults, graph, number
from grafana.generator.query import Query, highest, rate, series, total

IDS = "minikafka_transactional_ids"
CHANNELS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
VERIFICATION = "kafka_server_addpartitionstotxnmanager_"
ENDED = rate("kafka_network_requestmetrics_requests_total", 'request="EndTxn"')


def _ids(state: str) -> str:
    return total(series(IDS, f'state=~"{state}"'))


STATE = Section(
    "State",
    [
        number(
            "Transactional ids",
            "Those that coordinators remember, at work or not; transactional.id.expiration.ms (7 days) after "
            "the last transaction they are forgotten.",
            Query(total(series(IDS)), "ids"),
        ),
        number(
            "Open",
            "Transactions that have written something and are not ended. One that remains open holds back "
            "readers at read_committed; transaction.timeout.ms ends it.",
            Query(_ids("Ongoing"), "transactions"),
        ),
        number(
            "Being ended",
            "The decision is made, and the partitions are being told. Milliseconds each.",
            Query(_ids("PrepareCommit|PrepareAbort"), "transactions"),
        ),
        faults(
            "Without a leader",
            "Transactions whose markers wait for a partition without a leader.",
            total(series(f"{CHANNELS}unknowndestinationqueuesize")),
            "transactions",
            is_warning=True,
        ),
        faults(
            "To be noted",
            "Transactions whose markers are written, but whose end the log of their coordinator did not take "
            "yet: too few of its replicas are in sync.",
            total(series(f"{CHANNELS}logappendretryqueuesize")),
            "transactions",
            is_warning=True,
        ),
        number(
            "Ended a second",
            "Commits and aborts that producers asked for.",
            Query(total(ENDED), "transactions"),
            unit="ops",
        ),
    ],
)

COURSE = Section(
    "At work",
    [
        by_broker(
            "Ended by coordinator",
            "A transactional id belongs to the leader of one partition of __transaction_state.",
            total(ENDED, "instance"),
            unit="ops",
        ),
        graph(
            "By state",
            "CompleteCommit and CompleteAbort: the last transaction has ended, and the producer has not "
            "begun another.",
            Query(total(series(IDS), "state"), "{{state}}"),
            width=8,
        ),
        graph(
            "End of a transaction",
            "What EndTxn takes at its coordinator, p99: the decision is written with acks=all. The markers "
            "come after it.",
            Query(
                highest(
                    series("kafka_network_requestmetrics_totaltimems", 'request="EndTxn"', 'quantile="0.99"'),
                    "instance",
                ),
                "{{instance}}",
            ),
            unit="ms",
            width=8,
        ),
    ],
)

VERIFICATIONS = Section(
    "Verification",
    [
        by_broker(
            "Time",
            "From a transaction's first batch in a partition until its coordinator has answered, p99. The "
            "batch waits for it, later ones of the transaction do not.",
            highest(series(f"{VERIFICATION}verificationtimems", 'quantile="0.99"'), "instance"),
            unit="ms",
            thresholds=above(warning=100),
            width=12,
        ),
        by_broker(
            "Refused",
            "Partitions a second for which the coordinator did not agree or could not be asked. Producers of "
            "another's or an old transaction are refused; for some seconds also while coordinators move.",
            total(rate(f"{VERIFICATION}verificationfailurerate_total"), "instance"),
            unit="ops",
            thresholds=above(warning=1),
            width=12,
        ),
        graph(
            "Partitions of __transaction_state",
            "Active: transactional ids are served. Loading: seconds at most, after a leader moved. Failed is "
            "never normal.",
            Query(total(series("minikafka_transaction_coordinator_partitions"), "state"), "{{state}}"),
        ),
        by_broker(
            "Time to load",
            "The longest load of a partition of __transaction_state in the last minute. Its producers wait "
            "that long after a leader has moved.",
            series("kafka_server_transaction_coordinator_metrics_partition_load_time_max"),
            unit="ms",
            width=12,
        ),
    ],
)

TRANSACTIONS_DASHBOARD = Dashboard(
    name="transactions",
    title="transactions",
    description="How many transactions there are, how fast they end, and what they wait for.",
    variables=[],
    sections=[STATE, COURSE, VERIFICATIONS],
)
