"""OpenSSL's contexts for listeners and clients, out of settings and stores.

Kafka: ``DefaultSslEngineFactory``.

Imported only where TLS is used. Blocks: stores are read, keys decrypted.

As with Java, any certificate in a trust store is trusted, an intermediate one too; and where there is no
trust store, the system's authorities are. Renegotiation (TLS 1.2) is off; sessions may be resumed, but only
within one context, so what a new store or revocation list says holds for them too.

Where it differs from Kafka: before Python 3.15 the ciphers of TLS 1.3 cannot be chosen one by one.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from minikafka.errors import ConfigError
from minikafka.files import Files
from minikafka.security.stores import KeyStore, load_key_store, load_revocation_lists, load_trust_store
from minikafka.security.tls_settings import CIPHERS_OF_TLS_1_3, StoreSettings, TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TURNS_MAX = 16
"""Of a handshake in memory; it has at most three flights of each side."""
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

_REASONS = {
    "HTTP_REQUEST": "the peer speaks HTTP, not TLS",
    "HTTPS_PROXY_REQUEST": "the peer speaks HTTP, not TLS",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS (does it have security.protocol=SSL or SASL_SSL?)",
    "UNSUPPORTED_PROTOCOL": "the peer has no version of TLS that is enabled (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "no cipher suite that both have (ssl.cipher.suites)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer shows no certificate, and must (ssl.client.auth)",
}


def server_context(settings: TlsSettings, *, files: Files | None = None) -> ssl.SSLContext:
    """For connections that a listener accepts.

    Raises:
        ConfigError: there is no key store, or a store cannot be used; names the property and what to do.
    """
    return server_side(settings, files=files)[0]


def server_side(settings: TlsSettings, *, files: Files | None = None) -> tuple[ssl.SSLContext, KeyStore]:
    """``server_context``, and the key store that it has. Raises ConfigError."""
    key_store = load_key_store(settings.key_store, files=files)
    if key_store is None:
        name_of = settings.key_store.name_of
        raise ConfigError(
            f"a listener with TLS needs a key store: set {name_of('location')} and {name_of('type')} (PEM or "
            f"PKCS12), or {name_of('key')} and {name_of('certificate.chain')}"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    _use_key(context, key_store, settings)
    if settings.client_auth != "none":
        _use_trust(context, settings, files, ssl.Purpose.CLIENT_AUTH)
    return context, key_store


def client_context(settings: TlsSettings, *, files: Files | None = None) -> ssl.SSLContext:
    """For connections to a server, which must show a certificate that is trusted, and of the name that it was
    called by unless ``ssl.endpoint.identification.algorithm`` is empty.

    Raises:
        ConfigError: a store cannot be used; names the property and what to do.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.checks_host_name
    key_store = load_key_store(settings.key_store, files=files)
    if key_store is not None:
        _use_key(context, key_store, settings)
    _use_trust(context, settings, files, ssl.Purpose.SERVER_AUTH)
    return context


def check_trusts_itself(settings: TlsSettings, server: ssl.SSLContext) -> None:
    """Whether brokers with these settings, which connect to each other, get through the handshake; the names
    in certificates are not looked at (``SslEngineValidator``).

    Raises:
        ConfigError: why not.
    """
    client = client_context(settings._replace(checks_host_name=False))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_TURNS_MAX):
        if not sides:
            return
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)
        except ssl.SSLError as error:
            trust_store = settings.trust_store
            trusted = (
                _described(trust_store, "certificates")
                if trust_store.is_set
                else f"the authorities of this system ({trust_store.name_of('location')} is not set)"
            )
            raise ConfigError(
                "brokers would not connect to each other with the certificate of "
                f"{_described(settings.key_store, 'certificate.chain')} and {trusted}: {reason_of(error)}"
            ) from None


def _described(store: StoreSettings, inline: str) -> str:
    """Where a store is, or the property that has it."""
    if store.location is None:
        return store.name_of(inline)
    return f"{store.location} ({store.name_of('location')})"


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _use_ciphers(context, settings)
    return context


def _use_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    wanted = settings.ciphers_of_tls_1_3
    if not wanted:
        return
    choose = getattr(context, "set_ciphersuites", None)
    if choose is not None:
        choose(":".join(wanted))
    elif missing := set(CIPHERS_OF_TLS_1_3) - set(wanted):
        raise ConfigError(
            f"{settings.key_store.names.of('ssl.cipher.suites')}: this Python (before 3.15) cannot choose "
            f"among the ciphers of TLS 1.3: name {', '.join(sorted(missing))} too, or none of them, which "
            "leaves TLS 1.2"
        )


def _use_key(context: ssl.SSLContext, key_store: KeyStore, settings: TlsSettings) -> None:
    source = settings.key_store.location or settings.key_store.name_of("key")
    try:
        with _private_file(key_store.key + key_store.chain) as path:
            context.load_cert_chain(path)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{source}: OpenSSL does not take this key store: {reason_of(error)}") from None


def _use_trust(
    context: ssl.SSLContext, settings: TlsSettings, files: Files | None, purpose: ssl.Purpose
) -> None:
    authorities = load_trust_store(settings.trust_store, files=files)
    try:
        if authorities is None:
            context.load_default_certs(purpose)
        else:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=b"".join(authorities))
        if settings.crl_location is not None:
            lists = load_revocation_lists(settings.crl_location, files=files)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            with _private_file(lists) as path:
                context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        source = settings.trust_store.location or settings.trust_store.name_of("location")
        raise ConfigError(f"{source}: OpenSSL does not take this trust store: {reason_of(error)}") from None


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """The path of a file with ``data``, for functions of OpenSSL's that read nothing else. It is in memory,
    or where the system has no such files, the owner's alone, and gone afterwards."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with os.fdopen(os.memfd_create("minikafka"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:  # 0600
        file.write(data)
        file.flush()
        yield file.name


def reason_of(error: BaseException) -> str:
    """Why a handshake or a store failed, in words for a log line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate does not hold: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = error.reason or ""
    known = _REASONS.get(reason)
    if known is not None:
        return known
    words = reason.lower().replace("_", " ")
    if "ALERT" in reason:  # what the peer said of us
        said = words.partition("alert ")[2]
        return f"the peer refuses: {said}"
    return words or str(error)
