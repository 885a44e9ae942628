"""Values that stand elsewhere: ``${file:/path:key}``, ``${directory:/path:key}``, ``${env:NAME}`` (KIP-297,
KIP-421, KIP-632).

Kafka: ``ConfigTransformer``, ``FileConfigProvider``, ``DirectoryConfigProvider``, ``EnvVarConfigProvider``,
``AbstractConfig.resolveConfigVariables``. ``config.providers=NAME,…`` names providers,
``config.providers.NAME.class`` says what each of them is (Kafka's class), ``config.providers.NAME.param.…``
how it works: ``allowed.paths`` of files and directories, ``allowlist.pattern`` of variables. Without
``config.providers``, and for a provider that it does not name, texts stay as they are.

What comes out is not looked at again. Errors name the property, the provider and the file, never a value.

Where it differs from Kafka: a key that is not there, a path that is not allowed and a provider without a
class are errors; Kafka leaves the text as it is, and the broker then has ``${…}`` for a password.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

from minikafka.config.properties import parse_properties
from minikafka.errors import ConfigError
from minikafka.files import read_linked

CONFIG_PROVIDERS = "config.providers"

_CLASS_PREFIX = "org.apache.kafka.common.config.provider."
FILE, DIRECTORY, ENVIRONMENT = "FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider"
_CLASSES = {f"{_CLASS_PREFIX}{name}": name for name in (FILE, DIRECTORY, ENVIRONMENT)}

_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
"""``ConfigTransformer.DEFAULT_PATTERN``: provider, path if there is one, key."""

FILE_BYTES_MAX = 1024 * 1024
"""A file of secrets is a few KiB; a larger one is something else, given by mistake."""


def is_of_providers(name: str) -> bool:
    """Whether a property says which providers there are."""
    return name == CONFIG_PROVIDERS or name.startswith(f"{CONFIG_PROVIDERS}.")


class _Provider(NamedTuple):
    kind: str
    allowed_paths: tuple[str, ...] | None
    allowlist: re.Pattern[str] | None


class ConfigProviders:
    """The providers that some properties name. A file is read once."""

    def __init__(self, properties: Mapping[str, str], *, environment: Mapping[str, str]) -> None:
        """``properties`` may have others too.

        Raises:
            ConfigError: a provider without a class, of an unknown one, or with a parameter that cannot be.
        """
        self._environment = environment
        self._read: dict[str, dict[str, str]] = {}
        names = (each.strip() for each in properties.get(CONFIG_PROVIDERS, "").split(","))
        self._providers = {name: _provider(name, properties) for name in names if name}

    def __repr__(self) -> str:
        return f"ConfigProviders({', '.join(self._providers)})"

    def resolve(self, name: str, text: str) -> str:
        """``text``, the value of the property ``name``, with what its references stand for.

        Raises:
            ConfigError: there is no such file, key or variable, or it is not allowed.
        """
        if not self._providers or "${" not in text:
            return text

        def value(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            if provider is None:
                return match[0]
            try:
                return self._value(provider, path=match[2] or "", key=match[3])
            except ConfigError as error:
                raise ConfigError(f"{name}: the config provider {match[1]}: {error}") from None

        return _REFERENCE.sub(value, text)

    def _value(self, provider: _Provider, *, path: str, key: str) -> str:
        if provider.kind == ENVIRONMENT:
            if path:
                raise ConfigError(f"${{env:NAME}} has no path, but {path} is one")
            if provider.allowlist is not None and not provider.allowlist.fullmatch(key):
                raise ConfigError(f"allowlist.pattern does not allow the environment variable {key}")
            if key not in self._environment:
                raise ConfigError(f"there is no environment variable {key}")
            return self._environment[key]
        if not path:
            raise ConfigError(f"a path is missing before {key}")
        if provider.kind == DIRECTORY:
            if key in ("", ".", "..") or "/" in key:
                raise ConfigError(f"{key} is no name of a file in {path}")
            path = f"{path.rstrip('/')}/{key}"
            self._check_allowed(provider, path)
            data = _bytes(path)
            try:
                return data.decode()
            except UnicodeDecodeError:
                raise ConfigError(f"{path} is not UTF-8") from None
        self._check_allowed(provider, path)
        properties = self._read.get(path)
        if properties is None:
            properties = self._read[path] = self._properties(path)
        if key not in properties:
            raise ConfigError(f"{path} has no {key}")
        return properties[key]

    def _check_allowed(self, provider: _Provider, path: str) -> None:
        if provider.allowed_paths is None:
            return
        plain = posixpath.normpath(path)
        if not any(
            plain == each or plain.startswith(f"{each.rstrip('/')}/") for each in provider.allowed_paths
        ):
            raise ConfigError(f"allowed.paths does not allow {path}")

    def _properties(self, path: str) -> dict[str, str]:
        data = _bytes(path)
        try:
            return {name: value for name, value, _ in parse_properties(data, source=path)}
        except ConfigError:  # it has a part of a value
            raise ConfigError(f"{path} is not a properties file: a malformed escape") from None


def _bytes(path: str) -> bytes:
    try:
        return read_linked(path, FILE_BYTES_MAX)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _provider(name: str, properties: Mapping[str, str]) -> _Provider:
    """Raises ConfigError."""
    prefix = f"{CONFIG_PROVIDERS}.{name}"
    class_name = properties.get(f"{prefix}.class", "").strip()
    kind = _CLASSES.get(class_name)
    if kind is None:
        known = ", ".join(_CLASSES)
        what = f"{class_name} is not there" if class_name else "it has no value"
        raise ConfigError(f"{prefix}.class: {what}; there are {known}")
    paths = properties.get(f"{prefix}.param.allowed.paths")
    allowed = None
    if paths is not None and kind != ENVIRONMENT:
        allowed = tuple(posixpath.normpath(each.strip()) for each in paths.split(",") if each.strip())
        if not all(posixpath.isabs(each) for each in allowed):
            raise ConfigError(f"{prefix}.param.allowed.paths: {paths}: each must be an absolute path")
    pattern = properties.get(f"{prefix}.param.allowlist.pattern")
    try:
        allowlist = None if pattern is None or kind != ENVIRONMENT else re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{prefix}.param.allowlist.pattern: {error}") from None
    return _Provider(kind, allowed, allowlist)


def resolve_properties(properties: Mapping[str, str], *, environment: Mapping[str, str]) -> dict[str, str]:
    """All of a file's properties with what their references stand for, without those of the providers
    themselves: what a client's ``--command-config`` means.

    Raises:
        ConfigError: as ``ConfigProviders``.
    """
    providers = ConfigProviders(properties, environment=environment)
    return {
        name: providers.resolve(name, text) for name, text in properties.items() if not is_of_providers(name)
    }
