"""The security directory: an authority, the certificates that it has issued, a secure broker's users.

Apache Kafka leaves this to keytool and openssl (its documentation: "Encryption and Authentication using
SSL"). Everything in the directory is the owner's alone::

    ca.pem, ca.key          the authority
    crl.pem                 what is revoked; brokers read it again when it changes
    index.json              every certificate that was issued
    brokers/NAME/           keystore.pem, ca.pem and crl.pem, to be copied to another machine; with
                            ``--secure`` also its properties and its address
    clients/NAME/           keystore.pem, ca.pem, and files that clients take (``security.client_files``)
    users/NAME/             password, ca.pem, and such files

A change is made under a lock, so that two commands do not lose each other's entries; each file is replaced in
one step. Times are UTC; ``now`` and new passwords are arguments. Calls of a ``SecurityDirectory`` block: they
are for a start, a command or a thread.

A ``CertificateAuthority`` takes bytes and gives bytes. Keys are on the curve P-256, which every client knows
and which are made in a millisecond; they and serial numbers come from OpenSSL's generator. A broker's
certificate holds for the names that clients connect to, and serves both ways, because brokers connect to
brokers; a client's holds for a client alone, so that no client can pose as a broker. All carry what RFC 5280
demands of a verifier that is strict, as OpenSSL's is for Python 3.13. Which names of users, brokers and hosts
may stand in a certificate is checked without ``cryptography``.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple
from minikafka.security.client_files import AUTHORITY_FILE, KEY_STORE_FILE, Login, client_files

if TYPE_CHECKING:
    pass

AUTHORITY_LIFETIME = timedelta(days=3650)
BROKER_LIFETIME = timedelta(days=825)
"""The longest that Apple's verifier, the strictest in use, takes from a server of a private authority."""
CLIENT_LIFETIME = timedelta(days=365)
BACKDATED = timedelta(hours=1)
"""A certificate is valid at once, also on a machine whose clock is behind."""

AUTHORITY_KEY_FILE, REVOKED_FILE, INDEX_FILE = "ca.key", "crl.pem", "index.json"
PASSWORD_FILE, ADDRESS_FILE = "password", "address"
PKCS12_KEY_STORE, PKCS12_TRUST_STORE = "keystore.p12", "truststore.p12"
_LOCK_FILE = ".lock"
RENEWED_BEFORE = timedelta(days=30)
"""How long before its end a certificate is due: time enough for a monthly job."""

Kind = Literal["broker", "client"]

NAME_CHARACTERS_MAX = 64
"""X.520's bound of a common name."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""Every broker's certificate holds for them too."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
HOST_CHARACTERS_MAX = 253


class Issued(NamedTuple):
    """A new key with its certificate."""

    key: bytes
    """PEM, PKCS #8, not encrypted."""
    certificate: bytes
    """PEM, without the authority's."""
    serial: int
    not_before: datetime
    not_after: datetime


class Revocation(NamedTuple):
    serial: int
    at: datetime


class CertificateAuthority:
    """An authority with its key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    def __repr__(self) -> str:
        return f"CertificateAuthority({self._certificate.subject.rfc4514_string()})"

    @classmethod
    def create(cls, *, now: datetime) -> CertificateAuthority:
        """A new one. Its name differs from that of any other, so that stores with two can tell them apart."""
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"minikafka authority {serial:040x}"[:32])])
        certificate = (
            _builder(name, name, key.public_key(), serial, now, now + AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> CertificateAuthority:
        """From PEM.

        Raises:
            ConfigError: they are not what ``create`` makes, or do not belong together.
        """
        try:
            private = load_pem_private_key(key, password=None)
        except (ValueError, TypeError):  # TypeError: the key is encrypted
            raise ConfigError("the authority's key is no private key in PEM without a password") from None
        try:
            public = x509.load_pem_x509_certificate(certificate)
        except ValueError:
            raise ConfigError("the authority's certificate is none in PEM") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != public.public_key():
            raise ConfigError("the authority's key is not the one of its certificate")
        return cls(private, public)

    @property
    def key(self) -> bytes:
        """PEM, PKCS #8, not encrypted."""
        return _key_pem(self._key)

    @property
    def certificate(self) -> bytes:
        """PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def not_after(self) -> datetime:
        return self._certificate.not_valid_after_utc

    def issue_broker(self, name: str, hosts: Sequence[str], *, now: datetime) -> Issued:
        """For a broker that is reached under ``hosts`` and ``LOCAL_NAMES``.

        Raises:
            ConfigError: a name or host cannot be in a certificate.
        """
        alternatives = [_general_name(host) for host in broker_hosts(hosts)]
        return self._issue(
            check_name(name),
            now=now,
            lifetime=BROKER_LIFETIME,
            usages=[ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            alternatives=x509.SubjectAlternativeName(alternatives),
        )

    def issue_client(self, name: str, *, now: datetime) -> Issued:
        """For a client, whose common name is ``name``. Raises ConfigError: no certificate can have it."""
        return self._issue(
            check_name(name), now=now, lifetime=CLIENT_LIFETIME, usages=[ExtendedKeyUsageOID.CLIENT_AUTH]
        )

    def revocation_list(self, revocations: Iterable[Revocation], *, now: datetime) -> bytes:
        """A CRL, PEM. It holds as long as the authority: brokers read it from a file that is replaced, and a
        list that ran out would refuse everybody."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - BACKDATED)
            .next_update(max(self.not_after, now + timedelta(days=1)))
            .add_extension(self._authority_key_identifier(), critical=False)
            .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        )
        for serial, at in revocations:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def _issue(
        self,
        name: str,
        *,
        now: datetime,
        lifetime: timedelta,
        usages: list[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> Issued:
        if now >= self.not_after:
            raise ConfigError(
                f"the certificate authority has expired on {self.not_after:%Y-%m-%d}: make a new one"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        not_after = min(now + lifetime, self.not_after)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), serial, now, not_after)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(self._authority_key_identifier(), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(
            _key_pem(key),
            certificate.public_bytes(Encoding.PEM),
            serial,
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
        )

    def _authority_key_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def key_store_pkcs12(name: str, key: bytes, certificate: bytes, authority: bytes, *, password: str) -> bytes:
    """Key, certificate and the authority's, from PEM, as a PKCS12 key store."""
    private = load_pem_private_key(key, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return pkcs12.serialize_key_and_certificates(
        name.encode(),
        private,
        x509.load_pem_x509_certificate(certificate),
        [x509.load_pem_x509_certificate(authority)],
        BestAvailableEncryption(password.encode()),
    )


def trust_store_pkcs12(authority: bytes, *, password: str) -> bytes:
    """The authority's certificate, from PEM, as a PKCS12 trust store with the attribute that Java wants."""
    trusted = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(authority), b"authority")
    return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password.encode()))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """One that was issued, as the index has it."""

    serial: str
    """Hexadecimal."""
    kind: Kind
    name: str
    hosts: tuple[str, ...] = ()
    not_before: datetime
    not_after: datetime
    revoked_at: datetime | None = None

    def state(self, now: datetime) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if now >= self.not_after else "valid"


class SecurityDirectory:
    """See the module header. Nothing is read or written before a method is called."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def __repr__(self) -> str:
        return f"SecurityDirectory({str(self.path)!r})"

    @property
    def has_authority(self) -> bool:
        """Raises ConfigError: there is no telling, as the directory may not be looked into."""
        try:
            return (self.path / AUTHORITY_FILE).exists()
        except OSError as error:
            raise self._unusable(error) from None

    @property
    def authority_file(self) -> Path:
        return self.path / AUTHORITY_FILE

    @property
    def revoked_file(self) -> Path:
        return self.path / REVOKED_FILE

    def broker_directory(self, name: str) -> Path:
        return self.path / "brokers" / name

    def client_directory(self, name: str) -> Path:
        return self.path / "clients" / name

    def user_directory(self, name: str) -> Path:
        return self.path / "users" / name

    def create(self, *, now: datetime) -> None:
        """Make an authority.

        Raises:
            ConfigError: there is one already, or the directory cannot be used.
        """
        with self._locked(is_new=True):
            if self.has_authority:
                raise ConfigError(
                    f"{self.path} has a certificate authority; a new one would make every certificate of it "
                    "useless: choose another directory, or remove this one first"
                )
            self._create(now)

    def ensure_authority(self, *, now: datetime) -> bool:
        """Whether one had to be made. Raises ConfigError: the directory cannot be used."""
        with self._locked(is_new=True):
            if self.has_authority:
                return False
            self._create(now)
            return True

    def certificates(self) -> list[Certificate]:
        """All that were issued, the oldest first. Raises ConfigError: there is no authority."""
        self._check_authority()
        try:
            return msgspec.json.decode(self._read(INDEX_FILE), type=list[Certificate])
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.path / INDEX_FILE} is damaged: {error}") from None

    def current(self, name: str) -> Certificate | None:
        """The last that was issued to ``name``."""
        return next((each for each in reversed(self.certificates()) if each.name == name), None)

    def issue_broker(
        self,
        name: str,
        hosts: Sequence[str],
        *,
        now: datetime,
        replace: bool = False,
        pkcs12_password: str | None = None,
    ) -> Certificate:
        """A certificate for the broker ``name``, which clients reach under ``hosts``.

        Raises:
            ConfigError: a name is not allowed; there is one, and it may not be replaced; files.
        """
        with self._locked():
            self._check_new("broker", name, replace=replace)
            return self._issue("broker", name, broker_hosts(hosts), now, pkcs12_password)

    def issue_client(
        self, name: str, *, now: datetime, replace: bool = False, pkcs12_password: str | None = None
    ) -> Certificate:
        """A certificate for the user ``name``. Raises ConfigError as ``issue_broker`` does."""
        with self._locked():
            self._check_new("client", name, replace=replace)
            return self._issue("client", name, (), now, pkcs12_password)

    def ensure_broker(self, name: str, hosts: Sequence[str], *, now: datetime) -> bool:
        """A certificate for the broker ``name`` that holds for ``hosts`` and for a while; whether a new one
        had to be made. Raises ConfigError as ``issue_broker`` does."""
        with self._locked():
            found = self.current(name)
            before = () if found is None else found.hosts
            wanted = broker_hosts([*before, *hosts])
            key_store = self.broker_directory(name) / KEY_STORE_FILE
            if found is not None and wanted == before and not _is_due(found, now) and key_store.exists():
                return False
            self._check_new("broker", name, replace=True)
            self._issue("broker", name, wanted, now, None)
            return True

    def renew(
        self, names: Sequence[str], *, now: datetime, pkcs12_password: str | None = None
    ) -> list[Certificate]:
        """New keys and certificates for ``names``, or for all that are due; the old ones hold until they end.

        Raises:
            ConfigError: one of them has no certificate, or a revoked one; nothing is renewed then.
        """
        with self._locked():
            if names:
                found = [self._renewable(name) for name in dict.fromkeys(names)]
            else:
                latest = {each.name: each for each in self.certificates()}
                found = [each for each in latest.values() if each.revoked_at is None and _is_due(each, now)]
            for each in found:
                self._check_pkcs12(each, pkcs12_password)
            return [self._issue(each.kind, each.name, each.hosts, now, pkcs12_password) for each in found]

    def revoke(self, name: str, *, now: datetime) -> list[Certificate]:
        """Revoke all certificates of ``name`` that hold.

        Raises:
            ConfigError: it has none.
        """
        with self._locked():
            certificates = self.certificates()
            revoked = [each for each in certificates if each.name == name and each.state(now) == "valid"]
            if not revoked:
                known = any(each.name == name for each in certificates)
                why = "none that is valid" if known else "none"
                raise ConfigError(f"{name} has no certificate to revoke: {self.path} has {why} of this name")
            self._write_index(
                [
                    msgspec.structs.replace(each, revoked_at=now) if each in revoked else each
                    for each in certificates
                ]
            )
            self._write_revoked(now)
            return revoked

    def password(self, user: str, new_password: Callable[[], str]) -> str:
        """The password of a user of the secure broker; a new one the first time. Raises ConfigError."""
        with self._locked():
            file = self.user_directory(user) / PASSWORD_FILE
            if not file.exists():
                self._write(file, new_password().encode() + b"\n")
            return self._read(file).decode().removesuffix("\n")

    def write_client_files(self, login: Login) -> None:
        """Those of ``client_files`` that are not there with the same content. Raises ConfigError."""
        with self._locked():
            for name, text in client_files(login).items():
                file = Path(login.directory) / name
                if not file.exists() or self._read(file) != text.encode():
                    self._write(file, text.encode())

    def login(self, name: str, bootstrap_servers: str, password: str | None = None) -> Login:
        """How ``name`` connects: with ``password`` as a user, without by its certificate."""
        directory = self.client_directory(name) if password is None else self.user_directory(name)
        return Login(name, bootstrap_servers, str(directory), self._read(AUTHORITY_FILE).decode(), password)

    def bootstrap_servers(self) -> str:
        """The addresses of the brokers that have told one (``ADDRESS_FILE``), with commas."""
        files = sorted(self.path.glob(f"brokers/*/{ADDRESS_FILE}"))
        return ",".join(self._read(file).decode().strip() for file in files)

    def write_broker_file(self, name: str, file_name: str, text: str) -> Path:
        """A file beside the key store of the broker ``name``. Raises ConfigError."""
        file = self.broker_directory(name) / file_name
        with self._locked():
            self._write(file, text.encode())
        return file

    # Inside; all of it under the lock.

    def _create(self, now: datetime) -> None:

        made = CertificateAuthority.create(now=now)
        self._write(AUTHORITY_KEY_FILE, made.key)
        self._write(REVOKED_FILE, made.revocation_list([], now=now))
        self._write_index([])
        self._write(AUTHORITY_FILE, made.certificate)  # the last: with it there is an authority

    def _authority(self) -> CertificateAuthority:

        self._check_authority()
        key, certificate = self._read(AUTHORITY_KEY_FILE), self._read(AUTHORITY_FILE)
        try:
            return CertificateAuthority.load(key, certificate)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from None

    def _check_authority(self) -> None:
        if not self.has_authority:
            raise ConfigError(
                f"{self.path} has no certificate authority: make one with `minikafka certs init`, or name "
                "the right directory with --dir"
            )

    def _check_new(self, kind: Kind, name: str, *, replace: bool) -> None:
        check_name(name)
        found = self.current(name)
        if found is None:
            return
        if found.kind != kind:
            raise ConfigError(f"{name} is the name of a {found.kind}: choose another")
        if not replace:
            raise ConfigError(
                f"there is a certificate for {name}, which ends {found.not_after:%Y-%m-%d}: --overwrite "
                "makes a new key and certificate in its place"
            )

    def _renewable(self, name: str) -> Certificate:
        found = self.current(name)
        if found is None:
            raise ConfigError(f"there is no certificate for {name} in {self.path}")
        if found.revoked_at is not None:
            raise ConfigError(
                f"the certificate for {name} is revoked; `minikafka certs {found.kind}` with --overwrite "
                "makes a new one"
            )
        return found

    def _check_pkcs12(self, certificate: Certificate, password: str | None) -> None:
        if password is None and (self._directory(certificate) / PKCS12_KEY_STORE).exists():
            raise ConfigError(
                f"{self._directory(certificate) / PKCS12_KEY_STORE} is to be renewed too: give its password "
                "with --pkcs12-password-file, or remove it"
            )

    def _directory(self, certificate: Certificate) -> Path:
        of_kind = self.broker_directory if certificate.kind == "broker" else self.client_directory
        return of_kind(certificate.name)

    def _issue(
        self, kind: Kind, name: str, hosts: tuple[str, ...], now: datetime, pkcs12_password: str | None
    ) -> Certificate:
        issuer = self._authority()
        made = (
            issuer.issue_broker(name, hosts, now=now)
            if kind == "broker"
            else issuer.issue_client(name, now=now)
        )
        certificate = Certificate(
            serial=f"{made.serial:x}",
            kind=kind,
            name=name,
            hosts=hosts,
            not_before=made.not_before,
            not_after=made.not_after,
        )
        # The index first: what is not in it could not be revoked.
        self._write_index([*self.certificates(), certificate])
        directory = self._directory(certificate)
        if pkcs12_password is not None:
            key_store = key_store_pkcs12(
                name, made.key, made.certificate, issuer.certificate, password=pkcs12_password
            )
            self._write(directory / PKCS12_KEY_STORE, key_store)
            trust_store = trust_store_pkcs12(issuer.certificate, password=pkcs12_password)
            self._write(directory / PKCS12_TRUST_STORE, trust_store)
        self._write(directory / AUTHORITY_FILE, issuer.certificate)
        if kind == "broker":
            self._write(directory / REVOKED_FILE, self._read(REVOKED_FILE))
        self._write(directory / KEY_STORE_FILE, made.key + made.certificate + issuer.certificate)
        return certificate

    def _write_index(self, certificates: list[Certificate]) -> None:
        self._write(INDEX_FILE, msgspec.json.format(msgspec.json.encode(certificates), indent=1) + b"\n")

    def _write_revoked(self, now: datetime) -> None:

        revocations = [
            Revocation(int(each.serial, 16), each.revoked_at)
            for each in self.certificates()
            if each.revoked_at is not None
        ]
        crl = self._authority().revocation_list(revocations, now=now)
        self._write(REVOKED_FILE, crl)
        for copy in sorted(self.path.glob(f"brokers/*/{REVOKED_FILE}")):
            self._write(copy, crl)

    @contextmanager
    def _locked(self, *, is_new: bool = False) -> Iterator[None]:
        if not is_new:
            self._check_authority()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.stat()
            if found.st_uid != os.geteuid():
                raise ConfigError(
                    f"the security directory {self.path} is another user's, whose authority would be "
                    "trusted: choose another directory, or run as that user"
                )
            if found.st_mode & 0o022:
                raise ConfigError(
                    f"others than its owner may write to the security directory {self.path}: chmod 700 "
                    f"{self.path}"
                )
            lock = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot use the security directory {self.path}: {error.strerror}: choose another")

    def _read(self, file: str | Path) -> bytes:
        try:
            return (self.path / file).read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self.path / file}: {error.strerror}") from None

    def _write(self, file: str | Path, data: bytes) -> None:
        """In one step, 0600 from the first byte on, in directories of 0700."""
        target = self.path / file
        temporary = target.with_name(target.name + ".tmp")
        try:
            for directory in reversed(target.relative_to(self.path).parents):
                (self.path / directory).mkdir(mode=0o700, exist_ok=True)
            temporary.unlink(missing_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(handle)
            temporary.rename(target)
        except OSError as error:
            raise ConfigError(f"cannot write {target}: {error.strerror}") from None


def _is_due(certificate: Certificate, now: datetime) -> bool:
    return certificate.revoked_at is not None or now >= certificate.not_after - RENEWED_BEFORE


def check_name(name: str) -> str:
    """``name`` of a client or broker, which is a common name, a principal's name and a directory's.

    Raises:
        ConfigError: it cannot be all of these without an escape in one of them.
    """
    if len(name) > NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a name: 1 to {NAME_CHARACTERS_MAX} letters, digits and . _ @ - are allowed, "
            "the first of them a letter or a digit"
        )
    return name


def check_host(host: str) -> str:
    """``host`` as a certificate has it: a name in lower case without a final dot, or an address in its usual
    form.

    Raises:
        ConfigError: it is neither.
    """
    text = host.strip().removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > HOST_CHARACTERS_MAX or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ConfigError(f"{host!r} is neither a host name nor an address")
    return name


def broker_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """All names that a certificate for ``hosts`` holds for, each once. Raises ConfigError."""
    return tuple(dict.fromkeys([*map(check_host, hosts), *LOCAL_NAMES]))
