"""How a client reaches a secured broker: by TLS or not, by which SASL mechanism, as whom.

Kafka: ``ClientUtils.createChannelBuilder``, ``SaslClientCallbackHandler``. Made once out of Java's client
properties, used for every connection: the stores are read when the first connection needs them, in a thread.

Nothing here shows a password, a token or a key, in no ``repr`` and no error.

**Bearer tokens** of a client that logs in by OAUTHBEARER: out of a file, from an endpoint, or its own. Kafka:
``OAuthBearerLoginCallbackHandler``, ``FileTokenRetriever``, ``HttpAccessTokenRetriever`` (KIP-768),
``OAuthBearerUnsecuredLoginCallbackHandler``. A token from an endpoint is kept until four fifths of its life
are over. No token and no secret is in an error or a ``repr``.

**A login by SASL** over a connection that has just been made, and again before its session ends. Kafka:
``SaslClientAuthenticator``, ``ExpiringCredentialRefreshingLogin``; KIP-43 (handshake), KIP-152
(SaslAuthenticate), KIP-368 (re-authentication). After ApiVersions: SaslHandshake names the mechanism,
SaslAuthenticate carries its messages, until both sides are content. A mechanism itself is pure
(``security.sasl``); what derives keys runs in a thread.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from minikafka.config.listeners import SECURITY_PROTOCOLS, is_loopback
from minikafka.config.security import SASL_MECHANISMS
from minikafka.errors import ConfigError, ErrorCode, MinikafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.jaas import jaas_module, sasl_client
from minikafka.security.sasl import SaslClient, SaslError
from minikafka.security.tls_settings import TlsSettings, client_tls_settings

if TYPE_CHECKING:
    import ssl

Ask = Callable[[ApiKey, Mapping[str, Any]], Awaitable[Any]]
"""One request on the connection, and its response's entity."""

TokenSource = Callable[[], Awaitable[str]]
"""A bearer token that is valid now, in compact form. Raises LoginRefused: none is to be had."""

REAUTHENTICATE_FROM, REAUTHENTICATE_TO = 0.85, 0.95
"""Between which parts of a session's lifetime the next login is due (``SaslClientAuthenticator``), at random,
so that clients that came together do not come again together."""

HANDSHAKE_VERSION = 1
"""With version 0 the mechanism's messages would follow without a request around them."""

UNSECURED_SUBJECT = "unsecuredLoginStringClaim_sub"
"""The option of the JAAS module by which a client makes its own token, without a signature."""

TOKEN_BYTES_MAX = 1024 * 1024
"""What a file or an endpoint may have: a token has some thousand bytes."""
TOKEN_DEADLINE_S = 10.0
"""Kafka's ``sasl.login.connect.timeout.ms`` and its like have no default; a login must end."""
TOKEN_REFRESH_PART = 0.8
"""Kafka's ``sasl.login.refresh.window.factor``."""
TOKEN_LIFETIME_S = 60.0
"""Of a token whose endpoint does not say; after that it is fetched again."""

TlsContext = Callable[[], Awaitable["ssl.SSLContext"]]
"""The context for the next connection. Raises ConfigError: a store cannot be read."""

CLIENT_CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": "clientId",
    "sasl.oauthbearer.client.credentials.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
"""Kafka 4.1 has as properties (KIP-1139) what was a JAAS option before."""


class LoginRefused(MinikafkaError):
    """The broker does not let us in, or failed to prove itself; says why, and has no secret in it."""


class SaslLogin:
    """Who logs in, and how: a mechanism, the options of its JAAS login module, a source of tokens."""

    def __init__(
        self, mechanism: str, options: Mapping[str, str], *, token: TokenSource | None = None
    ) -> None:
        """Raises ConfigError: an option is missing, or there is no such mechanism."""
        self.mechanism = mechanism
        self._options = options
        self.token = token
        if token is None:
            self._client(None)

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism})"

    async def __call__(self, ask: Ask) -> int:
        """Log in by requests of ``ask``. Returns after how many ms the broker wants to see a login again; 0:
        never.

        Raises:
            LoginRefused: by the broker, or by us.
            What ``ask`` raises.
        """
        client = self._client(None if self.token is None else await self.token())
        answer = await ask(ApiKey.SASL_HANDSHAKE, {"mechanism": self.mechanism})
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused("the listener has no SASL: set security.protocol to what it has")
        if answer.error_code != ErrorCode.NONE:
            raise LoginRefused(
                f"the broker does not accept {self.mechanism} here; it accepts "
                f"{', '.join(answer.mechanisms) or 'no mechanism'}: set sasl.mechanism"
            )
        message: bytes | None = client.first()
        lifetime_ms = 0
        while message is not None:
            answer = await ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code != ErrorCode.NONE:
                raise LoginRefused(answer.error_message or ErrorCode(answer.error_code).name)
            lifetime_ms = getattr(answer, "session_lifetime", None) or 0
            try:
                message = await asyncio.to_thread(client.next, bytes(answer.auth_bytes))
            except SaslError as error:
                raise LoginRefused(f"the broker failed to prove itself: {error}") from None
        return lifetime_ms

    def _client(self, token: str | None) -> SaslClient:
        return sasl_client(self.mechanism, self._options, nonce=_nonce, token=token)


def reauthenticate_after_ms(lifetime_ms: int) -> float:
    """When, in a session of this length, the next login is due; 0 when there is no need of one."""
    part = REAUTHENTICATE_FROM + (REAUTHENTICATE_TO - REAUTHENTICATE_FROM) * secrets.randbelow(1000) / 1000
    return lifetime_ms * part


def _nonce() -> str:
    return secrets.token_urlsafe(24)


def token_source(options: Mapping[str, str], url: str | None) -> TokenSource:
    """Where tokens come from. Raises ConfigError: nothing says it, or not completely."""
    if url is None:
        if UNSECURED_SUBJECT not in options:
            raise ConfigError(
                "OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url to an https: URL, or to "
                "a file: URL of a file that has it"
            )
        return _own_token(options)
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return _token_of_file(Path(urllib.parse.unquote(parts.path)))
    is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if not parts.hostname or not (parts.scheme == "https" or is_local):
        raise ConfigError(
            f"Invalid value {url} for configuration sasl.oauthbearer.token.endpoint.url: must be https: or "
            "file:, because the client's secret is sent there"
        )
    for name in ("clientId", "clientSecret"):
        if not options.get(name):
            raise ConfigError(
                f"sasl.jaas.config has no option {name}, which sasl.oauthbearer.token.endpoint.url needs: "
                'OAuthBearerLoginModule required clientId="…" clientSecret="…";'
            )
    return _EndpointTokens(url, options)


def _own_token(options: Mapping[str, str]) -> TokenSource:
    async def token() -> str:
        from minikafka.security.oauthbearer import unsecured_token

        return unsecured_token(options, now_s=time.time())

    return token


def _token_of_file(path: Path) -> TokenSource:
    """Read again for each login: who keeps it valid replaces it."""

    def read() -> str:
        with path.open("rb") as file:
            return file.read(TOKEN_BYTES_MAX).decode("ascii").strip()

    async def token() -> str:
        try:
            return await asyncio.to_thread(read)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise LoginRefused(f"cannot read the token in {path}: {why}") from None

    return token


class _EndpointTokens:
    """Tokens by the client credentials grant (RFC 6749, 4.4) of an endpoint; ``ssl.*`` options of the JAAS
    module say whom to trust there."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url
        self._options = options
        self._tls = client_tls_settings({k: v for k, v in options.items() if k.startswith("ssl.")})
        self._lock = asyncio.Lock()  # those who come meanwhile use the token that is under way
        self._token = ""
        self._good_until_s = 0.0

    def __repr__(self) -> str:
        return f"_EndpointTokens({self._url})"

    async def __call__(self) -> str:
        async with self._lock:
            if time.monotonic() >= self._good_until_s:
                answer = await asyncio.to_thread(self._ask)
                try:
                    lifetime_s = float(answer.get("expires_in", TOKEN_LIFETIME_S))
                except (TypeError, ValueError):
                    lifetime_s = TOKEN_LIFETIME_S
                self._token = answer["access_token"]
                self._good_until_s = time.monotonic() + lifetime_s * TOKEN_REFRESH_PART
            return self._token

    def _ask(self) -> dict[str, Any]:
        """In a thread. Raises LoginRefused."""
        client = ":".join(
            urllib.parse.quote(self._options[name], safe="") for name in ("clientId", "clientSecret")
        )
        form = {"grant_type": "client_credentials"}
        if scope := self._options.get("scope"):
            form["scope"] = scope
        request = urllib.request.Request(
            self._url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {b64encode(client.encode()).decode()}", "Accept": "application/json"},
        )
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]  # the secret is for this host alone
        if self._url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=read_stores(self._tls)))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=TOKEN_DEADLINE_S) as response:
                answer = json.loads(response.read(TOKEN_BYTES_MAX))
        except urllib.error.HTTPError as error:
            raise LoginRefused(f"{self._url} answers {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or type(error).__name__
            raise LoginRefused(f"no token from {self._url}: {why}") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("access_token"), str):
            raise LoginRefused(f"{self._url} answers without an access_token")
        return cast(dict[str, Any], answer)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class ClientSecurity:
    """What every connection of a client does before its first request."""

    def __init__(
        self, protocol: str, *, tls_context: TlsContext | None = None, login: SaslLogin | None = None
    ) -> None:
        self.protocol = protocol
        self.tls_context = tls_context
        """None: without TLS."""
        self.login = login
        """None: without SASL."""

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}{'' if self.login is None else f', {self.login.mechanism}'})"


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Of Java's client properties (``client.properties``); those that have nothing to do with it are ignored.

    Raises:
        ConfigError: names the property, and what to do.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(
            f"Invalid value {protocol} for configuration security.protocol: must be one of "
            f"{', '.join(SECURITY_PROTOCOLS)}"
        )
    tls_context = None
    if protocol.endswith("SSL"):
        tls_context = once_made(client_tls_settings(properties))
    login = None
    if protocol.startswith("SASL"):
        mechanism = sasl_mechanism(properties)
        options = jaas_options(properties.get("sasl.jaas.config"), mechanism)
        url = properties.get("sasl.oauthbearer.token.endpoint.url")
        credentials = {
            option: properties[name] for name, option in CLIENT_CREDENTIALS.items() if name in properties
        }
        login = sasl_login(mechanism, {**options, **credentials}, token_endpoint_url=url)
    return ClientSecurity(protocol, tls_context=tls_context, login=login)


def sasl_mechanism(properties: Mapping[str, str]) -> str:
    """``sasl.mechanism``, which has no default here: Kafka's is GSSAPI. Raises ConfigError."""
    mechanism = properties.get("sasl.mechanism", "").strip().upper()
    if mechanism in SASL_MECHANISMS:
        return mechanism
    known = ", ".join(SASL_MECHANISMS)
    if not mechanism:
        raise ConfigError(f"security.protocol is one of SASL: set sasl.mechanism to one of {known}")
    why = "Kerberos is not supported; " if mechanism == "GSSAPI" else ""
    raise ConfigError(
        f"Invalid value {mechanism} for configuration sasl.mechanism: {why}must be one of {known}"
    )


def jaas_options(text: str | None, mechanism: str) -> Mapping[str, str]:
    """The options of the login module in ``sasl.jaas.config``. Raises ConfigError."""
    if text is None or not text.strip():
        if mechanism == "OAUTHBEARER":  # whose token may be in a file, which is a property of its own
            return {}
        module = {"PLAIN": "plain.PlainLoginModule"}.get(mechanism, "scram.ScramLoginModule")
        raise ConfigError(
            f"sasl.jaas.config is not set, and {mechanism} needs it: sasl.jaas.config="
            f'org.apache.kafka.common.security.{module} required username="…" password="…";'
        )
    return jaas_module(text, mechanism).options


def sasl_login(
    mechanism: str, options: Mapping[str, str], *, token_endpoint_url: str | None = None
) -> SaslLogin:
    """The login of a client, or of a broker that is one. Raises ConfigError."""
    if mechanism != "OAUTHBEARER":
        return SaslLogin(mechanism, options)
    # with urllib: 30 ms that few need

    return SaslLogin(mechanism, options, token=token_source(options, token_endpoint_url))


# TLS
def once_made(settings: TlsSettings) -> TlsContext:
    """The context of these settings, made when it is first asked for; a failure is tried again."""
    made: ssl.SSLContext | None = None

    async def context() -> ssl.SSLContext:
        nonlocal made
        if made is None:
            made = await asyncio.to_thread(read_stores, settings)
        return made

    return context


def read_stores(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client. Reads files. Raises ConfigError."""
    from minikafka.security.tls import client_context  # with ssl and cryptography: 50 ms that few need

    return client_context(settings)
