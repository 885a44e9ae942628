"""Who may log in on which listener, and with what: made of the configuration, and again when that changes.

Kafka: ``SaslChannelBuilder``, ``CredentialProvider``, ``ScramServerCallbackHandler``,
``PlainServerCallbackHandler``, ``OAuthBearerValidatorCallbackHandler``; KIP-103, KIP-226.

There is one on a broker that has a SASL listener. A change of the configuration holds for the logins that
begin afterwards; one that cannot be used is logged, and what was before holds.

**The keys that an issuer of tokens signs with**: read from a file or a URL, and again from time to time.
Kafka: ``RefreshingHttpsJwks``, ``RefreshingHttpsJwksVerificationKeyResolver``,
``JwksFileVerificationKeyResolver``; KIP-768.

Invariants: nothing is read on the loop; keys that were read once hold until others have been read; a token
with an unknown key has them read again, but not more often than every ``WANTED_PAUSE_MS``, because anybody
can send one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final
from urllib.parse import unquote, urlsplit

import msgspec

from minikafka.clock import Clock
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig
from minikafka.config.definition import parse_value
from minikafka.config.listeners import Listener
from minikafka.config.security import SecurityConfig, jaas_config_name, jaas_configs, listener_property
from minikafka.coordination import paths
from minikafka.coordination.store import CoordinationStore, NodeExistsError, NoNodeError
from minikafka.errors import ConfigError
from minikafka.metrics.broker_stats import SecurityMetrics
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Connection, Handler
from minikafka.security.jaas import LOGIN_MODULES, JaasModule, jaas_module, parse_jaas
from minikafka.security.oauthbearer import (
    BearerToken,
    ClaimRules,
    JwtValidator,
    OAuthBearerServer,
    UnknownKeyError,
    UnsecuredValidator,
    Validate,
    VerificationKey,
    parse_jwks,
)
from minikafka.security.sasl import PlainServer, PlainUsers, SaslServer
from minikafka.security.scram import ScramCredential, ScramServer, ScramUser, unknown_user_credential
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.security.delegation_tokens import DelegationTokens
from minikafka.server.security.sasl_authenticator import (
    LoginThreads,
    LoginTurns,
    SaslListener,
    SaslLogin,
    SaslSettings,
)
from minikafka.server.security.scram_credentials import ScramCredentials

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10
"""Kafka has none for the whole; its connect and read timeouts are the system's."""
JWKS_BYTES_MAX: Final = 1_000_000
"""Issuers have a handful of keys, of half a kilobyte each."""
WANTED_PAUSE_MS: Final = 10_000
CHUNK_BYTES: Final = 65_536

NONCE_BITS: Final = 160
"""Kafka's have 130."""
SECRET_BYTES: Final = 32

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
SECURED_VALIDATORS: Final = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
"""``sasl.server.callback.handler.class`` that mean what is done anyway."""
UNSECURED_VALIDATOR: Final = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
UNSECURED_OPTION_PREFIX: Final = "unsecuredValidator"

_MakeServer = Callable[[], SaslServer]


class JwksSettings(NamedTuple):
    """``sasl.oauthbearer.jwks.endpoint.*``."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


def check_jwks_url(url: str) -> None:
    """Raises ConfigError: it is neither a file nor a web address."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path and parts.netloc in ("", "localhost"):
        return
    if parts.scheme in ("http", "https") and parts.hostname:
        return
    raise ConfigError(
        f"Invalid value {url} for configuration sasl.oauthbearer.jwks.endpoint.url: must be a file: or an "
        "https: URL"
    )


class JwksSource:
    """One issuer's keys. ``run`` is a task."""

    def __init__(self, settings: JwksSettings) -> None:
        self._settings = settings
        self._keys: Sequence[VerificationKey] = ()
        self._wanted = asyncio.Event()
        self.tried = asyncio.Event()
        """Set when they have been read once, or could not be."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-jwks")

    def __repr__(self) -> str:
        return f"JwksSource({self._settings.url}, {len(self._keys)} keys)"

    def known(self) -> Sequence[VerificationKey]:
        """Those that are known now; of any thread."""
        return self._keys

    def want(self) -> None:
        """A token has a key id that is not known. Of any thread."""
        self._loop.call_soon_threadsafe(self._wanted.set)

    def close(self) -> None:
        """Read nothing more; what is being read is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        if urlsplit(settings.url).scheme == "http":  # Kafka takes it too
            logger.warning(
                "sasl.oauthbearer.jwks.endpoint.url %s is read without TLS: an attacker on the network can "
                "put in keys of his own and be any user; use https:",
                settings.url,
            )
        backoff_ms = settings.retry_backoff_ms
        while True:
            self._wanted.clear()
            is_read = await self._read()
            self.tried.set()
            if is_read:
                backoff_ms = settings.retry_backoff_ms
                quiet_ms = min(WANTED_PAUSE_MS, settings.refresh_ms)
                await asyncio.sleep(quiet_ms / 1000)
                try:
                    async with asyncio.timeout((settings.refresh_ms - quiet_ms) / 1000):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            else:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, settings.retry_backoff_max_ms)

    async def _read(self) -> bool:
        url = self._settings.url
        try:
            keys, complaints = await self._loop.run_in_executor(self._thread, lambda: parse_jwks(_fetch(url)))
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot read the keys of sasl.oauthbearer.jwks.endpoint.url %s: %s%s",
                url,
                _reason(error),
                "; those that were read before still hold" if self._keys else "",
            )
            return False
        for complaint in complaints:
            logger.warning("%s: %s; it is left out", url, complaint)
        if not keys:
            logger.warning("%s has no key that can verify a signature: no token will be taken", url)
        self._keys = keys
        return True


def _reason(error: Exception) -> str:
    """Without what Python wraps it in (``URLError``), and without the URL again."""
    cause = getattr(error, "reason", None)
    if not isinstance(cause, OSError):
        cause = error
    return getattr(cause, "strerror", None) or str(cause)


def _fetch(url: str) -> bytes:
    """What is there. Blocks. Raises OSError, ValueError: it is too large, or too slow."""
    deadline = time.monotonic() + TIMEOUT_S
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return _read_all(file, deadline)

    # 3 MB, the standard library's email package among them, that no broker without such a URL needs.
    from urllib.error import URLError
    from urllib.request import HTTPRedirectHandler, build_opener

    class SameSchemeRedirects(HTTPRedirectHandler):
        """Keys that were asked for over TLS do not come without."""

        def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
            if urlsplit(newurl).scheme != parts.scheme:
                raise URLError(f"it redirects to {urlsplit(newurl).scheme}:")
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    with build_opener(SameSchemeRedirects).open(url, timeout=TIMEOUT_S) as response:
        return _read_all(response, deadline)


def _read_all(file: IO[bytes], deadline: float) -> bytes:
    data = b""
    while chunk := file.read(CHUNK_BYTES):
        data += chunk
        if len(data) > JWKS_BYTES_MAX:
            raise ValueError(f"it has more than {JWKS_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise ValueError(f"it does not come within {TIMEOUT_S} s")
    return data


async def read_login_secret(store: CoordinationStore, rng: random.Random) -> bytes:
    """Random bytes that all brokers have in common, made by the first of them. By these a user that does not
    exist has the same salt whichever broker is asked, and whenever.

    Raises:
        StoreError.
    """
    path = paths.LOGIN_SECRET
    while True:
        try:
            return (await store.get(path)).data
        except NoNodeError:
            pass
        await store.ensure_path(path.rpartition("/")[0])
        try:
            await store.create(path, rng.randbytes(SECRET_BYTES))
        except NodeExistsError:
            continue  # another broker was faster


class _JwksUse(NamedTuple):
    source: JwksSource
    task: asyncio.Task[None]


_FindJwks = Callable[[JwksSettings], JwksSource]


class Authentication:
    """See the module header. ``close`` once."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        handler: Handler,
        credentials: ScramCredentials,
        tokens: DelegationTokens | None,
        login_secret: bytes,
        clock: Clock,
        rng: random.Random,
        scheduler: WorkScheduler,
        supervisor: Supervisor,
        metrics: SecurityMetrics,
    ) -> None:
        """``handler`` gets the requests of those who have logged in; logins are counted in ``metrics``.

        Raises:
            ConfigError: a SASL listener whose logins cannot work; names the property.
        """
        self._credentials = credentials
        self._tokens = tokens
        self._login_secret = login_secret
        self._clock = clock
        self._rng = rng
        self._supervisor = supervisor
        self._threads = LoginThreads()
        self._jwks: dict[JwksSettings, _JwksUse] = {}
        self._wanted_jwks: set[JwksSettings] = set()
        turns = LoginTurns()
        settings = self._settings(config, self._jwks_source)
        self.listeners: Mapping[str, SaslListener] = {
            name: SaslListener(
                name,
                of_listener,
                clock=clock,
                scheduler=scheduler,
                turns=turns,
                threads=self._threads,
                handler=handler,
                request_bytes_max=config.socket_request_max_bytes,
                counts=metrics.of(name),
            )
            for name, of_listener in settings.items()
        }
        """The SASL listeners, each the gate of its connections."""

    def __repr__(self) -> str:
        return f"Authentication({', '.join(map(repr, self.listeners.values()))})"

    async def keys_tried(self) -> None:
        """Until the keys of all issuers have been read, or could not be."""
        for use in list(self._jwks.values()):
            await use.source.tried.wait()

    def login_of(self, connection: Connection) -> SaslLogin | None:
        """None for a connection of a listener without SASL."""
        listener = self.listeners.get(connection.listener_name)
        return None if listener is None else listener.login_of(connection)

    async def check(self, config: BrokerConfig) -> None:
        """Whether clients could log in with ``config``. Nothing changes.

        Raises:
            ConfigError: names the property.
        """
        self._settings(config, JwksSource)

    def reconfigure(self, config: BrokerConfig) -> None:
        """This is configured now."""
        self._wanted_jwks.clear()
        try:
            settings = self._settings(config, self._jwks_source)
        except ConfigError as error:  # of a store that another broker, or another release, has written
            logger.error("%s; clients log in as they did before", error)
            return
        for unused in [each for each in self._jwks if each not in self._wanted_jwks]:
            use = self._jwks.pop(unused)
            use.task.cancel()
            use.source.close()
        for name, listener in self.listeners.items():
            if name in settings:
                listener.settings = settings[name]

    def close(self) -> None:
        """No login that is under way will be finished."""
        self._threads.close()
        for use in self._jwks.values():
            use.source.close()

    # What is configured

    def _settings(self, config: BrokerConfig, jwks_source: _FindJwks) -> dict[str, SaslSettings]:
        """By listener. Raises ConfigError."""
        return {
            listener.name: self._settings_of(config, listener, jwks_source)
            for listener in config.endpoints()
            if listener.protocol.startswith("SASL")
        }

    def _settings_of(self, config: BrokerConfig, listener: Listener, jwks_source: _FindJwks) -> SaslSettings:
        security = config.listener_security(listener.name)
        of_mechanisms = {
            each: mechanism_security(config, listener.name, each) for each in security.sasl_enabled_mechanisms
        }
        return SaslSettings(
            {
                mechanism: self._mechanism(config, listener.name, mechanism, of_mechanism, jwks_source)
                for mechanism, of_mechanism in of_mechanisms.items()
            },
            {mechanism: each.connections_max_reauth_ms for mechanism, each in of_mechanisms.items()},
            security.sasl_server_max_receive_size,
            security.connection_failed_authentication_delay_ms,
        )

    def _mechanism(
        self,
        config: BrokerConfig,
        listener: str,
        mechanism: str,
        security: SecurityConfig,
        jwks_source: _FindJwks,
    ) -> _MakeServer:
        """What makes the server side of one login. Raises ConfigError."""
        module = _module(config, listener, mechanism)
        handler_class = security.sasl_server_callback_handler_class or ""
        if handler_class and mechanism != "OAUTHBEARER":
            raise ConfigError(
                f"Invalid value {handler_class} for configuration sasl.server.callback.handler.class: "
                f"{mechanism} has no other handler than its own, and no Java class is loaded"
            )
        if mechanism == "PLAIN":
            users = PlainUsers({} if module is None else module.options)
            if not len(users):
                raise ConfigError(
                    f"PLAIN on listener {listener} has no users: set "
                    f"{jaas_config_name(listener, mechanism, config.originals)} to "
                    f'{LOGIN_MODULES[mechanism]} required user_NAME="password";'
                )
            return lambda: PlainServer(users.check)
        if mechanism == "OAUTHBEARER":
            options = {} if module is None else module.options
            validate = self._validator(listener, security, options, jwks_source)
            return lambda: OAuthBearerServer(validate)
        return lambda: ScramServer(
            mechanism,
            lambda name, is_token: self._scram_user(mechanism, name, is_token=is_token),
            nonce=f"{self._rng.getrandbits(NONCE_BITS):040x}",
            unknown_user=lambda name: self._unknown_user(mechanism, name),
        )

    def _scram_user(self, mechanism: str, name: str, *, is_token: bool) -> ScramUser | None:
        if is_token:
            return None if self._tokens is None else self._tokens.find(mechanism, name)
        credential = self._credentials.find(mechanism, name)
        return None if credential is None else ScramUser(credential, name)

    def _unknown_user(self, mechanism: str, name: str) -> ScramCredential:
        salt_bytes, iterations = self._credentials.usual(mechanism)
        return unknown_user_credential(
            mechanism, name, secret=self._login_secret, salt_bytes=salt_bytes, iterations=iterations
        )

    def _validator(
        self, listener: str, security: SecurityConfig, options: Mapping[str, str], jwks_source: _FindJwks
    ) -> Validate:
        """Raises ConfigError."""
        handler_class = security.sasl_server_callback_handler_class or ""
        url = security.sasl_oauthbearer_jwks_endpoint_url
        is_unsecured = handler_class == UNSECURED_VALIDATOR or (
            not handler_class and url is None and any(map(_is_unsecured_option, options))
        )
        if handler_class and not is_unsecured and handler_class not in SECURED_VALIDATORS:
            raise ConfigError(
                f"Invalid value {handler_class} for configuration sasl.server.callback.handler.class: no "
                f"Java class is loaded; {SECURED_VALIDATORS[0]} and {UNSECURED_VALIDATOR} are there"
            )
        if is_unsecured:
            logger.warning(
                "listener %s takes OAUTHBEARER tokens without a signature: anybody can log in as anybody",
                listener,
            )
            return UnsecuredValidator(options, now_ms=self._clock.now_ms)
        if url is None:
            raise ConfigError(
                f"OAUTHBEARER on listener {listener} needs sasl.oauthbearer.jwks.endpoint.url, where the "
                "keys of the issuer are"
            )
        check_jwks_url(url)
        rules = _claim_rules(listener, security)
        source = jwks_source(
            JwksSettings(
                url,
                security.sasl_oauthbearer_jwks_endpoint_refresh_ms,
                security.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
                security.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
            )
        )
        validate = JwtValidator(rules, keys=source.known, now_ms=self._clock.now_ms)

        def validate_and_want(token: str) -> BearerToken:
            try:
                return validate(token)
            except UnknownKeyError:
                source.want()
                raise

        return validate_and_want

    def _jwks_source(self, settings: JwksSettings) -> JwksSource:
        self._wanted_jwks.add(settings)
        use = self._jwks.get(settings)
        if use is None:
            source = JwksSource(settings)
            task = self._supervisor.start("jwks", source.run, restart=Restart.ALWAYS)
            use = self._jwks[settings] = _JwksUse(source, task)
        return use.source


def mechanism_security(config: BrokerConfig, listener: str, mechanism: str) -> SecurityConfig:
    """What holds for one mechanism of a listener: ``listener.name.NAME.MECHANISM.…`` over the listener's."""
    changed = {}
    for name, text in config.originals.items():
        parts = listener_property(name)
        if parts is None or (parts.listener, parts.mechanism) != (listener.upper(), mechanism):
            continue
        key = BROKER_CONFIG_KEYS[parts.name]
        changed[key.attribute] = None if key.nullable and not text.strip() else parse_value(key, text)
    return msgspec.structs.replace(config.listener_security(listener), **changed)


def _module(config: BrokerConfig, listener: str, mechanism: str) -> JaasModule | None:
    """The login module of the mechanism: its own, or the one that fits in what is set for all mechanisms."""
    texts = jaas_configs(listener, config.originals)
    try:
        if mechanism in texts:
            return jaas_module(texts[mechanism], mechanism)
        for_all: Iterable[JaasModule] = parse_jaas(texts[""]) if texts.get("") else ()
    except ConfigError as error:
        name = jaas_config_name(listener, mechanism, config.originals)
        raise ConfigError(f"{error} (the listener {listener} has it from {name})") from None
    return next((each for each in for_all if each.login_module == LOGIN_MODULES[mechanism]), None)


def _is_unsecured_option(option: str) -> bool:
    return option.startswith(UNSECURED_OPTION_PREFIX)


def _claim_rules(listener: str, security: SecurityConfig) -> ClaimRules:
    """Raises ConfigError: it is neither said whose tokens are taken, nor that anybody's are
    (``BrokerJwtValidator``)."""
    for what, is_set, allows_any in (
        (
            "audience",
            security.sasl_oauthbearer_expected_audience,
            security.sasl_oauthbearer_allow_unverified_audience,
        ),
        (
            "issuer",
            security.sasl_oauthbearer_expected_issuer,
            security.sasl_oauthbearer_allow_unverified_issuer,
        ),
    ):
        if is_set:
            continue
        if not allows_any:
            raise ConfigError(
                f"OAUTHBEARER on listener {listener} needs sasl.oauthbearer.expected.{what}: set it, or "
                f"sasl.oauthbearer.allow.unverified.{what}=true to accept tokens of any {what}"
            )
        logger.warning("listener %s takes OAUTHBEARER tokens of any %s", listener, what)
    return ClaimRules(
        scope_claim=security.sasl_oauthbearer_scope_claim_name,
        sub_claim=security.sasl_oauthbearer_sub_claim_name,
        issuer=security.sasl_oauthbearer_expected_issuer,
        audiences=security.sasl_oauthbearer_expected_audience or None,
        allows_any_audience=security.sasl_oauthbearer_allow_unverified_audience,
        clock_skew_ms=1000 * security.sasl_oauthbearer_clock_skew_seconds,
    )
