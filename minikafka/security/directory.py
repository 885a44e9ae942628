"""The security directory: an authority, the certificates that it has issued, a secure broker's users.

There is no counterpart in Kafka. Everything in it is the owner's alone::

    ca.pem, ca.key          the authority
    crl.pem                 what is revoked; brokers read it again when it changes
    index.json              every certificate that was issued
    brokers/NAME/           keystore.pem, ca.pem and crl.pem, to be copied to another machine; with
                            ``--secure`` also its properties and its address
    clients/NAME/           keystore.pem, ca.pem, and files that clients take (``security.client_files``)
    users/NAME/             password, ca.pem, and such files

A change is made under a lock, so that two commands do not lose each other's entries; each file is replaced in
one step. Times are UTC; ``now`` and new passwords are arguments. Calls block: they are for a start, a command
or a thread.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from minikafka.errors import ConfigError
from minikafka.security.certificate_names import broker_hosts, check_name
from minikafka.security.client_files import (
    AUTHORITY_FILE,
    KEY_STORE_FILE,
    Login,
    client_files,
)

if TYPE_CHECKING:
    from minikafka.security.authority import CertificateAuthority

AUTHORITY_KEY_FILE, REVOKED_FILE, INDEX_FILE = "ca.key", "crl.pem", "index.json"
PASSWORD_FILE, ADDRESS_FILE = "password", "address"
PKCS12_KEY_STORE, PKCS12_TRUST_STORE = "keystore.p12", "truststore.p12"
_LOCK_FILE = ".lock"
RENEWED_BEFORE = timedelta(days=30)
"""How long before its end a certificate is due: time enough for a monthly job."""

Kind = Literal["broker", "client"]


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
        from minikafka.security.authority import (
            CertificateAuthority,  # cryptography: 50 ms, not at every start
        )

        made = CertificateAuthority.create(now=now)
        self._write(AUTHORITY_KEY_FILE, made.key)
        self._write(REVOKED_FILE, made.revocation_list([], now=now))
        self._write_index([])
        self._write(AUTHORITY_FILE, made.certificate)  # the last: with it there is an authority

    def _authority(self) -> CertificateAuthority:
        from minikafka.security.authority import (
            CertificateAuthority,  # cryptography: 50 ms, not at every start
        )

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
            from minikafka.security.authority import key_store_pkcs12, trust_store_pkcs12

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
        from minikafka.security.authority import Revocation

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
