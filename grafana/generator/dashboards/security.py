"""Who logs in, who is refused, and what the authorizer says."""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, graph, number
from grafana.generator.query import BROKER, Query, rate, series, top, total
from grafana.generator.variables import broker_choice

SOCKET_SERVER = "kafka_server_socket_server_metrics_"
AUTHORIZATION = "kafka_server_plugins_authorization_"
LISTENER = "{{listener}}"


def _by_listener(name: str) -> str:
    return total(rate(f"{name}_total", BROKER), "listener")


LOGINS = Section(
    "Logins",
    [
        number(
            "Failed logins",
            "A second, on all listeners and the HTTP port. 0 is normal; a few come from clients with an old "
            "password, many from password guessing.",
            Query(total(rate(f"{SOCKET_SERVER}failed_authentication_total", BROKER)), "failed"),
            unit="reqps",
            thresholds=above(warning=0.1, critical=5),
            width=6,
        ),
        number(
            "Failed handshakes",
            "TLS handshakes a second that failed: a certificate that is not trusted or is out of date, or a "
            "client that speaks no TLS. 0 is normal.",
            Query(total(rate("minikafka_tls_handshakes_failed_total", BROKER)), "failed"),
            unit="reqps",
            thresholds=above(warning=0.1),
            width=6,
        ),
        number(
            "Denied questions",
            "Questions a second that the authorizer said no to. Near 0 is normal.",
            Query(total(rate(f"{AUTHORIZATION}denied_total", BROKER)), "denied"),
            unit="reqps",
            thresholds=above(warning=1),
            width=6,
        ),
        number(
            "ACLs",
            "ACLs of the cluster. Every broker has the same ones, but for the moments of a change.",
            Query(f"max({series('kafka_server_plugins_acls_total_count', BROKER)})", "ACLs"),
            width=6,
        ),
        graph(
            "Successful logins",
            "A second, by listener. Steady, but for clients that come all at once after a restart.",
            Query(_by_listener(f"{SOCKET_SERVER}successful_authentication"), LISTENER),
            unit="reqps",
        ),
        graph(
            "Failed logins and handshakes",
            "A second, by listener. The log of the broker names the address and the reason of each.",
            Query(_by_listener(f"{SOCKET_SERVER}failed_authentication"), f"{LISTENER} login"),
            Query(_by_listener("minikafka_tls_handshakes_failed"), f"{LISTENER} handshake"),
            unit="reqps",
            thresholds=above(critical=5),
        ),
        graph(
            "Re-authentication",
            "Clients a second that proved again who they are (connections.max.reauth.ms), and those that "
            "could not: their user is gone, or has another password. 0 where it is not asked for.",
            Query(_by_listener(f"{SOCKET_SERVER}successful_reauthentication"), f"{LISTENER} successful"),
            Query(_by_listener(f"{SOCKET_SERVER}failed_reauthentication"), f"{LISTENER} failed"),
            unit="reqps",
        ),
        graph(
            "Expired connections",
            "Connections that were closed since the broker started because they went on after their time, "
            "and clients a second that are too old to prove themselves again.",
            Query(
                total(series(f"{SOCKET_SERVER}expired_connections_killed_count", BROKER), "listener"),
                f"{LISTENER} closed",
            ),
            Query(_by_listener(f"{SOCKET_SERVER}successful_authentication_no_reauth"), f"{LISTENER} too old"),
        ),
    ],
)

DECISIONS = Section(
    "Authorizer",
    [
        by_broker(
            "Allowed",
            "Questions a second that the authorizer said yes to.",
            rate(f"{AUTHORIZATION}allowed_total", BROKER),
            unit="reqps",
        ),
        by_broker(
            "Denied",
            "Those that it said no to. The broker's log names principal, operation and resource of each; "
            "`minikafka why-denied` says which ACL decides, or which is missing.",
            rate(f"{AUTHORIZATION}denied_total", BROKER),
            unit="reqps",
            thresholds=above(critical=10),
        ),
        by_broker(
            "Share denied",
            "Of all questions. Near 0 is normal; a client that retries without its rights makes it rise.",
            " / ".join(rate(f"{AUTHORIZATION}{name}_total", BROKER) for name in ("denied", "request")),
            unit="percentunit",
        ),
    ],
)

CONNECTIONS = Section(
    "New connections",
    [
        graph(
            "Accepted",
            "Connections a second, by listener. A client that reconnects for each request shows here.",
            Query(_by_listener(f"{SOCKET_SERVER}connection_creation"), LISTENER),
            unit="reqps",
            width=8,
        ),
        graph(
            "Refused",
            "Connections a second that were closed at once because of max.connections or "
            "max.connections.per.ip, or the descriptors that the process has. 0 is normal.",
            Query(_by_listener("minikafka_connections_refused"), LISTENER),
            unit="reqps",
            width=8,
        ),
        graph(
            "Throttled",
            "How long a connection had to wait, because too many came at once: to the listener, or "
            "from its address (ip).",
            Query(
                top(
                    10,
                    total(rate("minikafka_connection_throttle_seconds_total", BROKER), "listener", "by")
                    + " / "
                    + total(rate("minikafka_connection_throttles_total", BROKER), "listener", "by"),
                ),
                "{{listener}} by {{by}}",
            ),
            unit="s",
            width=8,
        ),
    ],
)

SECURITY_DASHBOARD = Dashboard(
    name="security",
    title="security",
    description="Who logs in, who is refused, and what the authorizer says.",
    variables=[broker_choice()],
    sections=[LOGINS, DECISIONS, CONNECTIONS],
)
