"""Key stores and trust stores: PEM texts and files, and PKCS #12.

Kafka: ``DefaultSslEngineFactory.PemStore``, ``FileBasedPemStore``, ``FileBasedStore``; KIP-651. What is read
is checked here, so that what is wrong with a store is told by the name of its property, and before a broker
puts the store in place of another one.

Blocks: files are read and keys decrypted. Needs ``cryptography``, which is imported when a store is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.errors import ConfigError
from minikafka.files import Files, OsFiles
from minikafka.named_tuple import NamedTuple
from minikafka.security.tls_settings import StoreSettings

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, Name

T = TypeVar("T")

STORE_BYTES_MAX = 4 * 1024 * 1024
"""Of one file. A distribution's whole list of authorities takes a quarter of a MiB."""

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""JKS, and JCEKS."""


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
