"""OpenSSL's contexts for listeners and clients, out of settings (``tls_settings``) and stores, read here too.

Kafka: ``DefaultSslEngineFactory`` with ``PemStore``, ``FileBasedPemStore`` and ``FileBasedStore``; KIP-651.

Imported only where TLS is used. Blocks: files are read, keys decrypted. Needs ``cryptography``, which is
imported when a store is read.

**Stores** are key stores and trust stores: PEM texts and files, and PKCS #12. What is read is checked, so
that what is wrong with a store is told by the name of its property, and before a broker puts the store in
place of another one.

As with Java, any certificate in a trust store is trusted, an intermediate one too; and where there is no
trust store, the system's authorities are. Renegotiation (TLS 1.2) is off; sessions may be resumed, but only
within one context, so what a new store or revocation list says holds for them too.

Where it differs from Kafka: before Python 3.15 the ciphers of TLS 1.3 cannot be chosen one by one.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.errors import ConfigError
from minikafka.files import Files, OsFiles
from minikafka.named_tuple import NamedTuple
from minikafka.security.tls_settings import CIPHERS_OF_TLS_1_3, StoreSettings, TlsSettings

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, Name

T = TypeVar("T")

STORE_BYTES_MAX = 4 * 1024 * 1024
"""Of one file. A distribution's whole list of authorities takes a quarter of a MiB."""

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""JKS, and JCEKS."""
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


class KeyStore(NamedTuple):
    """A private key and the certificates that go with it; its repr tells no key."""

    key: bytes
    """PKCS #8, PEM, not encrypted."""
    chain: bytes
    """PEM, the key's own certificate first."""
    distinguished_name: Name
    alternative_names: frozenset[str]
    expires_ms: int
    """Since the epoch: the end of the key's own certificate."""

    def __repr__(self) -> str:
        return f"KeyStore({self.distinguished_name.rfc4514_string()})"

    def check_replaces(self, old: KeyStore, *, allows_dn: bool, allows_san: bool) -> None:
        """Whether clients of ``old`` may get this one instead (``SslFactory.CertificateEntries``).

        Raises:
            ConfigError: another distinguished name, or fewer alternative names, which must be allowed.
        """
        if not allows_dn and self.distinguished_name != old.distinguished_name:
            raise ConfigError(
                "Keystore DistinguishedName does not match: "
                f"existing={old.distinguished_name.rfc4514_string()}, "
                f"new={self.distinguished_name.rfc4514_string()} (ssl.allow.dn.changes)"
            )
        if not allows_san and not self.alternative_names >= old.alternative_names:
            raise ConfigError(
                "Keystore SubjectAltNames do not match: "
                f"existing={', '.join(sorted(old.alternative_names))}, "
                f"new={', '.join(sorted(self.alternative_names))} (ssl.allow.san.changes)"
            )


def load_key_store(settings: StoreSettings, *, files: Files | None = None) -> KeyStore | None:
    """None when none is set.

    Raises:
        ConfigError: the file cannot be read, is of another type, or key and certificate do not belong
            together; names the property and what to do.
    """
    if not settings.is_set:
        return None
    source = settings.location or settings.name_of("key")
    if settings.type == "PEM":
        if settings.location is None:
            assert settings.key is not None and settings.certificates is not None
            key_text, chain_text = settings.key.encode(), settings.certificates.encode()
        else:
            key_text = chain_text = _read_pem(settings, files)
        key = _pem_key(key_text, settings, source)
        certificates = _pem_certificates(chain_text, settings)
    else:
        key, certificates = _pkcs12(settings, files)
    if key is None:
        raise ConfigError(f"{source}: there is no private key in it ({settings.name_of('location')})")
    return _key_store(key, certificates, source)


def load_trust_store(settings: StoreSettings, *, files: Files | None = None) -> list[bytes] | None:
    """The authorities, DER; None when none are set.

    Raises:
        ConfigError: as above, or there are none in it.
    """
    if not settings.is_set:
        return None
    if settings.type == "PEM":
        if settings.certificates is not None:
            text = settings.certificates.encode()
        else:
            text = _read_pem(settings, files)
        certificates = _pem_certificates(text, settings)
    else:
        _, certificates = _pkcs12(settings, files)
    if not certificates:
        raise ConfigError(
            f"{settings.location}: there are no certificates in it ({settings.name_of('location')})"
        )
    encoding = _serialization().Encoding.DER
    return [certificate.public_bytes(encoding) for certificate in certificates]


def load_revocation_lists(location: str, *, files: Files | None = None) -> bytes:
    """PEM.

    Raises:
        ConfigError: the file cannot be read, or has no list.
    """
    from cryptography import x509

    data = _read(location, "ssl.crl.location", files)
    marker = b"-----END X509 CRL-----"
    lists = [text + marker for text in data.split(marker)[:-1]]
    if not lists:
        raise ConfigError(f"{location}: has no certificate revocation list, PEM (ssl.crl.location)")
    for text in lists:
        begin = text.find(b"-----BEGIN X509 CRL-----")
        _parsed(lambda text=text[begin:]: x509.load_pem_x509_crl(text), location, "revocation list")  # type: ignore[misc]
    return data


def _key_store(key: Any, certificates: list[Certificate], source: str) -> KeyStore:
    """The chain begins with the certificate of the key, wherever that stood."""
    from cryptography import x509

    serialization = _serialization()

    def public(of: Any) -> bytes:
        return bytes(
            of.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def names_of(certificate: Certificate) -> tuple[Name, frozenset[str]]:
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return certificate.subject, frozenset()
        return certificate.subject, frozenset(str(getattr(name, "value", name)) for name in names)

    # What is in a certificate is looked at only here, and may be damaged where it was loaded all the same.
    wanted = public(key)
    publics = _parsed(lambda: [public(each) for each in certificates], source, "certificate")
    own = next((each for each, its in zip(certificates, publics, strict=True) if its == wanted), None)
    if own is None:
        raise ConfigError(f"{source}: has no certificate for its private key")
    chain = [own, *(each for each in certificates if each is not own)]
    subject, alternative_names = _parsed(lambda: names_of(own), source, "certificate")
    return KeyStore(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain),
        subject,
        alternative_names,
        int(own.not_valid_after_utc.timestamp() * 1000),
    )


def _read_pem(settings: StoreSettings, files: Files | None) -> bytes:
    assert settings.location is not None
    data = _read(settings.location, settings.name_of("location"), files)
    if b"-----BEGIN " not in data:
        raise ConfigError(
            f"{settings.location}: is no PEM file; for a .p12 file set {settings.name_of('type')}=PKCS12"
            f"{_conversion(settings.location) if data.startswith(_JKS_MAGICS) else ''}"
        )
    return data


def _pem_key(text: bytes, settings: StoreSettings, source: str) -> Any:
    """The first private key; None: there is none."""
    begin = text.find(b"-----BEGIN ")
    while begin >= 0:
        end = text.find(b"-----END ", begin)
        line_end = text.find(b"-----", end + 9) + 5 if end >= 0 else -1
        block = text[begin:line_end] if end >= 0 else text[begin:]
        if b"PRIVATE KEY-----" in block.split(b"\n", 1)[0] or b"PRIVATE KEY-----" in block[:64]:
            return _private_key(block, settings, source)
        begin = text.find(b"-----BEGIN ", begin + 1)
    return None


def _private_key(block: bytes, settings: StoreSettings, source: str) -> Any:
    serialization = _serialization()
    password = settings.key_password
    property_name = settings.names.of("ssl.key.password")
    is_encrypted = b"ENCRYPTED" in block
    if is_encrypted and password is None:
        raise ConfigError(f"{source}: the private key is encrypted; set {property_name}")
    try:
        return serialization.load_pem_private_key(
            block, password.encode() if is_encrypted and password is not None else None
        )
    except Exception as error:  # noqa: BLE001  # cryptography has no common class for bad input
        if is_encrypted:
            raise ConfigError(
                f"{source}: the private key cannot be decrypted; is {property_name} right?"
            ) from None
        raise ConfigError(f"{source}: the private key cannot be read: {_reason(error)}") from None


def _pem_certificates(text: bytes, settings: StoreSettings) -> list[Certificate]:
    from cryptography import x509

    source = settings.location or settings.name_of(
        "certificate.chain" if settings.kind == "keystore" else "certificates"
    )
    if b"-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigError(f"{source}: there are no certificates in it")
    return _parsed(lambda: x509.load_pem_x509_certificates(text), source, "certificate")


def _pkcs12(settings: StoreSettings, files: Files | None) -> tuple[Any, list[Certificate]]:
    from cryptography.hazmat.primitives.serialization import pkcs12

    location = settings.location
    assert location is not None
    data = _read(location, settings.name_of("location"), files)
    if data.startswith(_JKS_MAGICS):
        raise ConfigError(f"{location}: is a JKS store, which only Java reads{_conversion(location)}")
    if data.lstrip().startswith(b"-----BEGIN "):
        raise ConfigError(f"{location}: is a PEM file; set {settings.name_of('type')}=PEM")
    if data[:1] != b"\x30":  # a SEQUENCE, in which a PKCS #12 file is
        raise ConfigError(f"{location}: is no PKCS #12 file ({settings.name_of('location')})")
    password = None if settings.password is None else settings.password.encode()
    try:
        store = pkcs12.load_pkcs12(data, password)
    except Exception:  # noqa: BLE001  # as above
        raise ConfigError(
            f"{location}: cannot be read as PKCS #12; is {settings.name_of('password')} right?"
        ) from None
    certificates = [each.certificate for each in store.additional_certs]
    if store.cert is not None:
        certificates.insert(0, store.cert.certificate)
    return store.key, certificates


def _conversion(location: str) -> str:
    return (
        f"; convert it: keytool -importkeystore -srckeystore {location} -destkeystore "
        f"{location.rpartition('.')[0] or location}.p12 -deststoretype PKCS12"
    )


def _read(location: str, property_name: str, files: Files | None) -> bytes:
    files = files or OsFiles()
    try:
        if files.size(location) > STORE_BYTES_MAX:
            raise ConfigError(f"{location}: is larger than {STORE_BYTES_MAX} bytes ({property_name})")
        return files.read_bytes(location)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {location} ({property_name}): {reason}") from None


def _parsed(parse: Callable[[], T], source: str, what: str) -> T:
    """What ``parse`` reads. Raises ConfigError for whatever ``cryptography`` says about it."""
    try:
        return parse()
    except Exception as error:  # noqa: BLE001  # as above
        raise ConfigError(f"{source}: a {what} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _serialization() -> Any:
    from cryptography.hazmat.primitives import serialization

    return serialization


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
    else:  # what is set has to be there, as for Kafka: it would be missed when clients need certificates
        load_trust_store(settings.trust_store, files=files)
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
