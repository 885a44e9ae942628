"""Bearer tokens of a client that logs in by OAUTHBEARER: out of a file, from an endpoint, or its own.

Kafka: ``OAuthBearerLoginCallbackHandler``, ``FileTokenRetriever``, ``HttpAccessTokenRetriever`` (KIP-768),
``OAuthBearerUnsecuredLoginCallbackHandler``. A token from an endpoint is kept until four fifths of its life
are over. No token and no secret is in an error or a ``repr``.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from minikafka.config.listeners import is_loopback
from minikafka.errors import ConfigError
from minikafka.network.client_security import read_stores
from minikafka.network.sasl_login import LoginRefused, TokenSource
from minikafka.security.tls_settings import client_tls_settings

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
        from minikafka.security.sasl.oauthbearer import unsecured_token

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
