"""The value of ``sasl.jaas.config``: which login module, with which options, and the SASL client it comes to.

Kafka: ``JaasConfig``, ``JaasContext``, ``LoginModule``. One or more entries of the form

    loginModuleClass controlFlag (optionName=optionValue)*;

A word may stand in double or single quotes, in which a backslash escapes (``\\n``, ``\\t``, ``\\"``, octal)
as in Java's ``StreamTokenizer``. The class only names the module: no Java is loaded. Options' values are
secrets: they are in no repr and in no error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple
from minikafka.security.oauthbearer import OAuthBearerClient, unsecured_extensions
from minikafka.security.sasl import PlainClient, SaslClient
from minikafka.security.scram import TOKEN_AUTH, ScramClient

_SECURITY = "org.apache.kafka.common.security"
PLAIN_LOGIN_MODULE: Final = f"{_SECURITY}.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE: Final = f"{_SECURITY}.scram.ScramLoginModule"
OAUTHBEARER_LOGIN_MODULE: Final = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"

LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": SCRAM_LOGIN_MODULE,
    "OAUTHBEARER": OAUTHBEARER_LOGIN_MODULE,
}
"""The module of each mechanism."""

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
_OCTAL: Final = re.compile("[0-3][0-7]{0,2}|[0-7]{1,2}")
_WORD_END: Final = frozenset(" \t\r\n\f;=\"'")


class JaasModule(msgspec.Struct, frozen=True):
    """One entry. ``flag`` in lower case."""

    login_module: str
    flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasModule({self.login_module} {self.flag}, options {', '.join(self.options) or 'none'})"


class _Token(NamedTuple):
    text: str
    is_quoted: bool
    position: int

    def is_sign(self, sign: str) -> bool:
        return self.text == sign and not self.is_quoted


def parse_jaas(text: str) -> tuple[JaasModule, ...]:
    """The entries of ``text``, in their order.

    Raises:
        ConfigError: the text is none of this syntax; says what is wrong and where, without any value.
    """
    tokens = _tokens(text)
    modules = []
    place = 0
    while place < len(tokens):
        module, place = _entry(tokens, place)
        modules.append(module)
    if not modules:
        raise _invalid("Login module not specified in JAAS config")
    return tuple(modules)


def jaas_module(text: str, mechanism: str) -> JaasModule:
    """The one entry of ``text``, which must be of the login module of ``mechanism``.

    Raises:
        ConfigError: as ``parse_jaas``; several entries; another module.
    """
    modules = parse_jaas(text)
    if len(modules) > 1:
        raise _invalid(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    (module,) = modules
    expected = LOGIN_MODULES.get(mechanism)
    if expected is None:
        raise ConfigError(f"SASL mechanism {mechanism} is not supported: {', '.join(LOGIN_MODULES)} are")
    if module.login_module != expected:
        found = module.login_module if module.login_module in LOGIN_MODULES.values() else "another"
        raise _invalid(f"for {mechanism} the login module must be {expected}, not {found}")
    return module


def _entry(tokens: list[_Token], place: int) -> tuple[JaasModule, int]:
    login_module = tokens[place]
    if login_module.text in (";", "=") and not login_module.is_quoted:
        raise _invalid("Login module not specified in JAAS config", login_module)
    place += 1
    if place == len(tokens) or tokens[place].is_sign(";"):
        raise _invalid("Login module control flag not specified", login_module)
    flag = tokens[place]
    if flag.text.lower() not in CONTROL_FLAGS:
        raise _invalid(f"the control flag must be one of {', '.join(CONTROL_FLAGS)}", flag)
    place += 1
    options: dict[str, str] = {}
    while True:
        if place == len(tokens):
            raise _invalid("JAAS config entry not terminated by semi-colon")
        name = tokens[place]
        if name.is_sign(";"):
            return JaasModule(login_module.text, flag.text.lower(), options), place + 1
        if name.is_sign("=") or place + 1 == len(tokens) or not tokens[place + 1].is_sign("="):
            raise _invalid("an option must be of the form name=value, with a semicolon after the last", name)
        if place + 2 == len(tokens) or tokens[place + 2].is_sign(";") or tokens[place + 2].is_sign("="):
            raise _invalid(f"Value not specified for key '{name.text}' in JAAS config", name)
        if name.text in options:
            raise _invalid(f"the option '{name.text}' is there twice", name)
        options[name.text] = tokens[place + 2].text
        place += 3


def _tokens(text: str) -> list[_Token]:
    tokens = []
    place = 0
    while place < len(text):
        char = text[place]
        if char.isspace():
            place += 1
        elif char in ";=":
            tokens.append(_Token(char, False, place))
            place += 1
        elif char in "\"'":
            word, end = _quoted(text, place)
            tokens.append(_Token(word, True, place))
            place = end
        else:
            end = place
            while end < len(text) and text[end] not in _WORD_END:
                end += 1
            tokens.append(_Token(text[place:end], False, place))
            place = end
    return tokens


def _quoted(text: str, begin: int) -> tuple[str, int]:
    """The word that the quote at ``begin`` opens, and the place after its end."""
    quote, place = text[begin], begin + 1
    word: list[str] = []
    while place < len(text):
        char = text[place]
        if char == quote:
            return "".join(word), place + 1
        if char == "\n":
            break
        if char == "\\" and place + 1 < len(text):
            octal = _OCTAL.match(text, place + 1)
            if octal is not None:
                word.append(chr(int(octal[0], 8)))
                place = octal.end()
                continue
            place += 1
            char = _ESCAPES.get(text[place], text[place])
        word.append(char)
        place += 1
    raise _invalid(f"the quote {quote} is not closed", _Token("", True, begin))


def _invalid(reason: str, token: _Token | None = None) -> ConfigError:
    where = "" if token is None else f" (at character {token.position + 1})"
    return ConfigError(f"Invalid value [hidden] for configuration sasl.jaas.config: {reason}{where}")


def sasl_client(
    mechanism: str,
    options: Mapping[str, str],
    *,
    nonce: Callable[[], str],
    token: str | None = None,
) -> SaslClient:
    """The client of ``mechanism``, with the ``options`` of its login module.

    ``nonce`` gives random printable characters without a comma. ``token``: what OAUTHBEARER logs in with.

    Raises:
        ConfigError: an option is missing, or the mechanism is unknown.
    """
    if mechanism == "OAUTHBEARER":
        if token is None:
            raise ConfigError("OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url")
        return OAuthBearerClient(token, unsecured_extensions(options))
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(f"SASL mechanism {mechanism} is not supported: {', '.join(LOGIN_MODULES)} are")
    username, password = _needed(options, "username", mechanism), _needed(options, "password", mechanism)
    if mechanism == "PLAIN":
        if "\0" in username + password:
            raise ConfigError("the username and the password of PLAIN cannot have a NUL in them")
        return PlainClient(username, password)
    is_token = options.get(TOKEN_AUTH, "").lower() == "true"
    return ScramClient(mechanism, username, password, nonce=nonce(), is_token=is_token)


def _needed(options: Mapping[str, str], name: str, mechanism: str) -> str:
    value = options.get(name)
    if not value:
        raise ConfigError(f"the option {name} is missing in sasl.jaas.config, which {mechanism} needs")
    return value
