"""Where a broker's configuration comes from: a file, the environment, the command line, and what they name.

The command line is stronger than the environment, that than the file, that than the defaults. A property that
a stronger place sets takes its other names with it (``log.retention.hours`` on the command line beats
``log.retention.ms`` in the file).

- **File**: Java's ``.properties``, or TOML when its name ends in ``.toml``, with dotted or nested keys. (TOML
  does not allow ``max.connections`` next to ``max.connections.per.ip``: quote such names.) A name that is not
  known is reported and left out. Kafka's are all known, so a stock ``server.properties`` starts a broker.
- **Environment**: ``MINIKAFKA_`` and the property's name in capitals with underscores for dots:
  ``MINIKAFKA_LOG_SEGMENT_BYTES``. Kafka's images use ``KAFKA_``, which also holds their heap sizes and paths;
  those are not read. An unknown name is an error.
- **Command line**: ``name=value``. An unknown name is an error.

**Values that stand elsewhere**: ``${file:/path:key}``, ``${directory:/path:key}``, ``${env:NAME}`` (KIP-297,
KIP-421, KIP-632). Kafka: ``ConfigTransformer``, ``FileConfigProvider``, ``DirectoryConfigProvider``,
``EnvVarConfigProvider``, ``AbstractConfig.resolveConfigVariables``. ``config.providers=NAME,…``, in the file
or on the command line, names providers for values of all places; ``config.providers.NAME.class`` says what
each of them is (Kafka's class), ``config.providers.NAME.param.…`` how it works: ``allowed.paths`` of files
and directories, ``allowlist.pattern`` of variables. Without ``config.providers``, and for a provider that it
does not name, texts stay as they are. What comes out is not looked at again. An error about such a value has
the reference in its place, and names the property, the provider and the file, never a value.

Where it differs from Kafka: a key that is not there, a path that is not allowed and a provider without a
class are errors; Kafka leaves the text as it is, and the broker then has ``${…}`` for a password.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from minikafka.config.broker import (
    BROKER_CONFIG_KEYS,
    BrokerConfig,
    broker_config,
    broker_config_key,
    is_honoured,
    override_properties,
)
from minikafka.config.definition import parse_value
from minikafka.config.properties import parse_properties
from minikafka.config.security import LISTENER_PREFIX, listener_property
from minikafka.errors import ConfigError
from minikafka.files import Files, OsFiles, read_linked
from minikafka.named_tuple import NamedTuple

CONFIG_PROVIDERS = "config.providers"

_CLASS_PREFIX = "org.apache.kafka.common.config.provider."
FILE, DIRECTORY, ENVIRONMENT = "FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider"
_CLASSES = {f"{_CLASS_PREFIX}{name}": name for name in (FILE, DIRECTORY, ENVIRONMENT)}

_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
"""``ConfigTransformer.DEFAULT_PATTERN``: provider, path if there is one, key."""
"""A file of secrets is a few KiB; a larger one is something else, given by mistake."""

ENVIRONMENT_PREFIX = "MINIKAFKA_"
NOT_PROPERTIES = frozenset({"MINIKAFKA_PROFILE", "MINIKAFKA_PASSWORD"})
"""Variables of the command line tools, which may be set where a broker starts."""
FILE_BYTES_MAX = 1024 * 1024
"""A configuration is a few KiB; a larger file is something else, given by mistake."""

_LIKELY_TYPO = 0.88
"""How alike (``difflib``) an unknown name in a file must be to a known one to be called a typo of it. Kafka's
own properties that are not here stay below."""

_NAMED = re.compile(r"for configuration (\S+):")


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


class Setting(NamedTuple):
    """A property's text and where it stands, in words that an error can use. ``reference``: the text as it
    stands there, when the value has come from elsewhere and may be a secret."""

    name: str
    value: str
    origin: str
    reference: str | None = None

    def __repr__(self) -> str:
        return f"Setting({self.name}, {self.origin})"


class UnknownProperty(NamedTuple):
    """A property that is left out, the known one that was probably meant, and why it is left out."""

    name: str
    origin: str
    nearest: str | None
    why: str = "is not a property of minikafka and is ignored"

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.origin}: {self.name} {self.why}{hint}"


class Loaded(msgspec.Struct, frozen=True):
    """A checked configuration, and what was left out of it."""

    config: BrokerConfig
    unknown: tuple[UnknownProperty, ...] = ()

    def without_effect(self) -> list[str]:
        """The properties that were set and that are not honoured, sorted (``config.not_honoured``)."""
        return sorted(name for name in self.config.originals if not is_honoured(name))


def load(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    settings: Iterable[Setting] = (),
    files: Files | None = None,
) -> Loaded:
    """The configuration from a file, the environment and ``settings`` (the command line's, in their order).

    Raises:
        ConfigError: the property, its value, what is allowed, where it stands; or why a file is unreadable.
    """
    environment = environment or {}
    unknown: list[UnknownProperty] = []
    from_file: list[Setting] = []
    in_file = [] if path is None else read_file(path, files or OsFiles())
    settings = list(settings)
    of_providers = {each.name: each.value for each in (*in_file, *settings) if is_of_providers(each.name)}
    for setting in in_file:
        if is_of_providers(setting.name):
            continue
        if broker_config_key(setting.name) is not None:
            from_file.append(setting)
        else:
            nearest = _nearest(setting.name, BROKER_CONFIG_KEYS, cutoff=_LIKELY_TYPO)
            unknown.append(UnknownProperty(setting.name, setting.origin, nearest))
    merged: dict[str, str] = {}
    origins: dict[str, str] = {}
    references: dict[str, str] = {}
    providers = ConfigProviders(of_providers, environment=environment)
    on_command_line = [each for each in settings if not is_of_providers(each.name)]
    for layer in (from_file, from_environment(environment), on_command_line):
        resolved = [_resolved(setting, providers) for setting in layer]
        for setting in resolved:
            _check(setting)
            origins[setting.name] = setting.origin
            if setting.reference is not None:
                references[setting.value] = setting.reference
        merged = override_properties(merged, {setting.name: setting.value for setting in resolved})
    try:
        config = broker_config(merged)
    except ConfigError as error:
        raise ConfigError(_with_origin(_without(str(error), references), origins)) from None
    unknown += _of_unknown_listeners(config, origins)
    return Loaded(config, tuple(unknown))


def _of_unknown_listeners(config: BrokerConfig, origins: Mapping[str, str]) -> Iterator[UnknownProperty]:
    """``listener.name.NAME.…`` without a listener NAME; a KRaft controller's may be in Kafka's files."""
    names = {each.name for each in config.endpoints()} | {
        each.upper() for each in config.controller_listener_names
    }
    for name in config.originals:
        parts = listener_property(name)
        if parts is not None and parts.listener not in names:
            nearest = _nearest(parts.listener, names, cutoff=0.6)
            rest = name[len(LISTENER_PREFIX) + len(parts.listener) :]
            meant = None if nearest is None else f"{LISTENER_PREFIX}{nearest.lower()}{rest}"
            why = (
                f"is ignored, as there is no listener {parts.listener}; there are {', '.join(sorted(names))}"
            )
            yield UnknownProperty(name, origins.get(name, ""), meant, why)


def configured(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    settings: Iterable[Setting] = (),
    files: Files | None = None,
) -> dict[str, Setting]:
    """What ``load`` is given, by name: the strongest place of each property, unchecked.

    Raises:
        ConfigError: the file is unreadable, or a variable of the environment is no property's.
    """
    environment = environment or {}
    in_file = [] if path is None else read_file(path, files or OsFiles())
    settings = list(settings)
    of_providers = {each.name: each.value for each in (*in_file, *settings) if is_of_providers(each.name)}
    providers = ConfigProviders(of_providers, environment=environment)
    merged: dict[str, str] = {}
    found: dict[str, Setting] = {}
    for layer in (in_file, from_environment(environment), settings):
        resolved = [_resolved(each, providers) for each in layer if not is_of_providers(each.name)]
        found |= {setting.name: setting for setting in resolved}
        merged = override_properties(merged, {setting.name: setting.value for setting in resolved})
    return {name: found[name] for name in merged}


def parse_setting(text: str, *, origin: str = "--set") -> Setting:
    """``name=value`` as the command line gives it.

    Raises:
        ConfigError: there is no ``=``.
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{origin} {text}: must be name=value")
    return Setting(name.strip(), value.strip(), origin)


def from_environment(environment: Mapping[str, str]) -> list[Setting]:
    """The properties among environment variables, by name.

    Raises:
        ConfigError: a variable with the prefix is no property's.
    """
    names = {environment_name(name): name for name in BROKER_CONFIG_KEYS}
    found = []
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NOT_PROPERTIES:
            name = names.get(variable) or _not_honoured_of(variable)
            if name is None:
                nearest = _nearest(variable, names, cutoff=0.6)
                hint = f"; did you mean {nearest}?" if nearest else ""
                raise ConfigError(f"environment variable {variable} is not a property of minikafka{hint}")
            found.append(Setting(name, environment[variable], f"environment variable {variable}"))
    return found


def _not_honoured_of(variable: str) -> str | None:
    from minikafka.config.not_honoured import not_honoured_keys  # most brokers set none of them

    return next((name for name in not_honoured_keys() if environment_name(name) == variable), None)


def environment_name(name: str) -> str:
    """The environment variable for the property ``name``."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def read_file(path: str, files: Files) -> list[Setting]:
    """The properties in a file, unknown ones included.

    Raises:
        ConfigError: it cannot be read, or is not what its name says.
    """
    try:
        if files.is_directory(path):
            raise ConfigError(f"{path}: is a directory, not a configuration file")
        if files.size(path) > FILE_BYTES_MAX:
            raise ConfigError(
                f"{path}: is larger than {FILE_BYTES_MAX} bytes, so it is no configuration file"
            )
        data = files.read_bytes(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the configuration file {path}: {reason}") from None
    if path.endswith(".toml"):
        return parse_toml(data, source=path)
    return [
        Setting(name, value, f"{path}:{line}") for name, value, line in parse_properties(data, source=path)
    ]


def parse_toml(data: bytes, *, source: str) -> list[Setting]:
    """The properties in TOML text; tables become dotted names, arrays comma-separated lists.

    Raises:
        ConfigError: it is not TOML, or a value is of a kind that no property has.
    """
    import tomllib  # 5 ms that a .properties file does not need

    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of bytes, of TOML, of int()
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    settings: list[Setting] = []
    pending: list[tuple[str, Any]] = [(name, document[name]) for name in reversed(document)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending.extend((f"{name}.{inner}", value[inner]) for inner in reversed(value))
        else:
            settings.append(Setting(name, _toml_text(name, value, source), source))
    return settings


def _toml_text(name: str, value: Any, source: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{source}: {name} is a number that no property has")
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return ",".join(_toml_text(name, item, source) for item in value)
    raise ConfigError(f"{source}: {name} must be a string, a number, a boolean or a list of these")


def _resolved(setting: Setting, providers: ConfigProviders) -> Setting:
    """Raises ConfigError."""
    try:
        value = providers.resolve(setting.name, setting.value)
    except ConfigError as error:
        raise ConfigError(f"{setting.origin}: {error}") from None
    return setting if value == setting.value else setting._replace(value=value, reference=setting.value)


def _without(message: str, references: Mapping[str, str]) -> str:
    """``message`` with references where it has what they stand for."""
    for value, reference in references.items():
        if len(value) > 1:
            message = message.replace(value, reference)
    return message


def _check(setting: Setting) -> None:
    key = broker_config_key(setting.name)
    if key is None:
        nearest = _nearest_property(setting.name)
        hint = f"; did you mean {nearest}?" if nearest else ""
        raise ConfigError(f"{setting.origin}: {setting.name} is not a property of minikafka{hint}")
    try:
        setting.value.encode()
    except UnicodeEncodeError:  # what the command line and the environment make of other bytes
        raise ConfigError(f"{setting.origin}: the value of {key.name} is not UTF-8") from None
    if key.nullable and not setting.value.strip():
        return
    try:
        parse_value(key, setting.value)
    except ConfigError as error:
        why = str(error)
        if setting.reference is not None:
            named = f"for configuration {key.name}"
            why = f"Invalid value {setting.reference} {named}{why.partition(named)[2]}"
        raise ConfigError(f"{setting.origin}: {why}") from None


def _nearest_property(name: str) -> str | None:
    """The broker property that was probably meant, that of a listener with its prefix."""
    parts = listener_property(name)
    if parts is None:
        return _nearest(name, BROKER_CONFIG_KEYS, cutoff=0.6)
    prefix = name.removesuffix(parts.name)
    nearest = _nearest(parts.name, BROKER_CONFIG_KEYS, cutoff=0.6)
    meant = None if nearest is None else prefix + nearest
    return meant if meant is not None and broker_config_key(meant) is not None else None


def _nearest(name: str, names: Iterable[str], *, cutoff: float) -> str | None:
    import difflib  # only needed when there is something to say

    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return close[0] if close else None


def _with_origin(message: str, origins: Mapping[str, str]) -> str:
    """``message`` with the place of the property it names, when that was set somewhere."""
    match = _NAMED.search(message)
    origin = origins.get(match[1]) if match else None
    return f"{origin}: {message}" if origin else message
