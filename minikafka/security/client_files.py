"""What a client needs to get in, in the words of each: settings, and files that are ready for use.

Java and Kafka's tools take ``client.properties`` (``SslConfigs``, ``SaslConfigs``), librdkafka and kcat
``librdkafka.conf`` (``kcat -F``), Python ``kafka_clients.py``. All of them check the broker's certificate
and its name. ``client.properties`` has the authority's certificate in it, and ``kafka_clients.py`` finds it
beside itself; ``librdkafka.conf`` can only name where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.named_tuple import NamedTuple

MECHANISM = "SCRAM-SHA-512"
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

AUTHORITY_FILE = "ca.pem"
KEY_STORE_FILE = "keystore.pem"
"""Key and certificates in one file, as Java's PEM key store wants them; OpenSSL finds both in it."""

_PYTHON = '''\
"""How Python reaches Kafka as {name}. With this directory on the path::

    from kafka_clients import for_confluent_kafka
    producer = confluent_kafka.Producer(for_confluent_kafka())
"""

import ssl
from pathlib import Path

HERE = Path(__file__).resolve().parent
BOOTSTRAP_SERVERS = {bootstrap_servers!r}


def for_confluent_kafka():
    return {{
        "bootstrap.servers": BOOTSTRAP_SERVERS,
        "security.protocol": "{protocol}",
        "ssl.ca.location": str(HERE / "{authority}"),
{confluent}    }}


def for_kafka_python():
    return {{
        "bootstrap_servers": BOOTSTRAP_SERVERS.split(","),
        "security_protocol": "{protocol}",
        "ssl_cafile": str(HERE / "{authority}"),
{kafka_python}    }}


def for_aiokafka():
    context = ssl.create_default_context(cafile=HERE / "{authority}")
{aiokafka_context}    return {{
        "bootstrap_servers": BOOTSTRAP_SERVERS,
        "security_protocol": "{protocol}",
        "ssl_context": context,
{aiokafka}    }}
'''


class Login(NamedTuple):
    """Who a client is and where it connects. With ``password`` it logs in by SASL, without by certificate."""

    name: str
    bootstrap_servers: str
    directory: str
    """Where ``AUTHORITY_FILE`` is and, for a certificate, ``KEY_STORE_FILE``; absolute."""
    authority: str
    """The authority's certificate, PEM."""
    password: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.name!r}, {self.bootstrap_servers!r}, {self.directory!r})"

    @property
    def protocol(self) -> str:
        return "SSL" if self.password is None else "SASL_SSL"


def jaas_config(name: str, password: str) -> str:
    """``sasl.jaas.config`` of a SCRAM user, for a client or for brokers among themselves."""
    return f'{LOGIN_MODULE} required username="{_quoted(name)}" password="{_quoted(password)}";'


def java_settings(login: Login) -> dict[str, str]:
    """For the Java client, Kafka's own tools and minikafka's ``--command-config``."""
    settings = {
        "bootstrap.servers": login.bootstrap_servers,
        "security.protocol": login.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": login.authority,
    }
    if login.password is None:
        return settings | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{login.directory}/{KEY_STORE_FILE}",
        }
    return settings | {
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": jaas_config(login.name, login.password),
    }


def librdkafka_settings(login: Login) -> dict[str, str]:
    """For librdkafka and what is built on it: confluent-kafka, kcat."""
    settings = {
        "bootstrap.servers": login.bootstrap_servers,
        "security.protocol": login.protocol,
        "ssl.ca.location": f"{login.directory}/{AUTHORITY_FILE}",
    }
    if login.password is None:
        key_store = f"{login.directory}/{KEY_STORE_FILE}"
        return settings | {"ssl.certificate.location": key_store, "ssl.key.location": key_store}
    return settings | {
        "sasl.mechanisms": MECHANISM,
        "sasl.username": login.name,
        "sasl.password": login.password,
    }


def kafka_python_settings(login: Login) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": login.bootstrap_servers.split(","),
        "security_protocol": login.protocol,
        "ssl_cafile": f"{login.directory}/{AUTHORITY_FILE}",
    }
    if login.password is None:
        key_store = f"{login.directory}/{KEY_STORE_FILE}"
        return settings | {"ssl_certfile": key_store, "ssl_keyfile": key_store}
    return settings | _sasl(login.name, login.password)


def aiokafka_settings(login: Login) -> dict[str, Any]:
    import ssl  # an open broker needs none

    context = ssl.create_default_context(cafile=f"{login.directory}/{AUTHORITY_FILE}")
    settings = {
        "bootstrap_servers": login.bootstrap_servers,
        "security_protocol": login.protocol,
        "ssl_context": context,
    }
    if login.password is None:
        context.load_cert_chain(f"{login.directory}/{KEY_STORE_FILE}")
        return settings
    return settings | _sasl(login.name, login.password)


CLIENT_SETTINGS = {
    "confluent-kafka": librdkafka_settings,
    "librdkafka": librdkafka_settings,
    "aiokafka": aiokafka_settings,
    "kafka-python": kafka_python_settings,
    "java": java_settings,
}
"""The settings by what a client is called."""


def client_files(login: Login) -> dict[str, str]:
    """The files of a client by name, ``AUTHORITY_FILE`` among them, without ``KEY_STORE_FILE``."""
    told = f"# {login.name} at {login.bootstrap_servers}\n"
    return {
        AUTHORITY_FILE: login.authority,
        "client.properties": told + properties_text(java_settings(login)),
        "librdkafka.conf": told + "".join(f"{k}={v}\n" for k, v in librdkafka_settings(login).items()),
        "kafka_clients.py": _python_module(login),
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """A ``.properties`` file, as ``java.util.Properties.load`` reads it."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _python_module(login: Login) -> str:
    key_store = f'str(HERE / "{KEY_STORE_FILE}")'
    if login.password is None:
        confluent = _items({"ssl.certificate.location": key_store, "ssl.key.location": key_store})
        kafka_python = _items({"ssl_certfile": key_store, "ssl_keyfile": key_store})
        aiokafka, context = "", f'    context.load_cert_chain(HERE / "{KEY_STORE_FILE}")\n'
    else:
        user, password = repr(login.name), repr(login.password)
        confluent = _items(
            {"sasl.mechanisms": repr(MECHANISM), "sasl.username": user, "sasl.password": password}
        )
        kafka_python = aiokafka = _items(
            {name: repr(value) for name, value in _sasl(login.name, login.password).items()}
        )
        context = ""
    return _PYTHON.format(
        name=login.name,
        bootstrap_servers=login.bootstrap_servers,
        protocol=login.protocol,
        authority=AUTHORITY_FILE,
        confluent=confluent,
        kafka_python=kafka_python,
        aiokafka=aiokafka,
        aiokafka_context=context,
    )


def _items(texts: Mapping[str, str]) -> str:
    return "".join(f'        "{name}": {text},\n' for name, text in texts.items())


def _sasl(name: str, password: str) -> dict[str, str]:
    """As kafka-python and aiokafka name them."""
    return {"sasl_mechanism": MECHANISM, "sasl_plain_username": name, "sasl_plain_password": password}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + text if text.startswith(" ") else text
