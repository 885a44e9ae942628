"""Values that stand in files, directories and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minikafka.config.loader import ConfigProviders, load, parse_setting, resolve_properties
from minikafka.errors import ConfigError

CLASSES = {
    "file": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "directory": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
NAMED = {"config.providers": "file, directory,env"} | {
    f"config.providers.{name}.class": class_name for name, class_name in CLASSES.items()
}


def resolved(text: str, *, environment: dict[str, str] | None = None, **more: str) -> str:
    properties = {**NAMED, **{name.replace("__", "."): value for name, value in more.items()}, "p": text}
    return resolve_properties(properties, environment=environment or {})["p"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    file = tmp_path / "secrets.properties"
    file.write_text("key.password=ke y:1}\nother=${file:/x:y}\n")
    target = tmp_path / "..data"
    target.mkdir()
    (target / "token").write_text("line\n")
    (tmp_path / "token").symlink_to(target / "token")  # as Kubernetes mounts secrets
    return file


def test_each_provider_gives_what_its_reference_names(secrets: Path) -> None:
    assert resolved(f"${{file:{secrets}:key.password}}") == "ke y:1}"
    assert resolved(f"a${{directory:{secrets.parent}:token}}b") == "aline\nb"
    assert resolved("${env:HOST}:${env:PORT}", environment={"HOST": "h", "PORT": "1"}) == "h:1"
    assert resolved(f"${{file:{secrets}:other}}") == "${file:/x:y}", "what comes out is not looked at again"
    assert resolved("${vault:a:b} $HOME {x}") == "${vault:a:b} $HOME {x}", "no provider of that name"


def test_without_providers_a_text_is_what_it_says(secrets: Path) -> None:
    text = f"${{file:{secrets}:key.password}}"
    assert resolve_properties({"p": text}, environment={}) == {"p": text}


def test_what_is_not_there_is_named_and_never_a_value(secrets: Path) -> None:
    for text, words in (
        (f"${{file:{secrets}:nothing}}", f"p: the config provider file: {secrets} has no nothing"),
        ("${file:/no/such:key}", "cannot read /no/such: No such file"),
        (f"${{file:{secrets.parent}:key}}", "s a directory"),
        ("${file:key}", "a path is missing before key"),
        (f"${{directory:{secrets.parent}:../x}}", "../x is no name of a file"),
        ("${env:NOWHERE}", "there is no environment variable NOWHERE"),
        ("${env:/a:NOWHERE}", "has no path"),
    ):
        with pytest.raises(ConfigError) as error:
            resolved(text)
        assert words in str(error.value)
    secrets.write_text("key=top\\u12secret\n")
    with pytest.raises(ConfigError, match="malformed escape") as error:
        resolved(f"${{file:{secrets}:key}}")
    assert "secret" not in str(error.value).replace(str(secrets), "")


def test_only_allowed_paths_and_variables_are_read(secrets: Path) -> None:
    reference = f"${{file:{secrets}:key.password}}"
    allowed = "config__providers__file__param__allowed__paths"
    assert resolved(reference, **{allowed: f"/etc,{secrets.parent}"}) == "ke y:1}"
    for paths in ("/etc", f"{secrets.parent}/sec", ""):
        with pytest.raises(ConfigError, match=r"allowed\.paths does not allow"):
            resolved(reference, **{allowed: paths})
    with pytest.raises(ConfigError, match=r"allowed\.paths does not allow"):
        resolved(f"${{file:/etc/../{secrets}:key.password}}", **{allowed: "/etc"})
    pattern = "config__providers__env__param__allowlist__pattern"
    with pytest.raises(ConfigError, match="does not allow the environment variable HOME"):
        resolved("${env:HOME}", environment={"HOME": "/root"}, **{pattern: "KAFKA_.*"})


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"config.providers": "file"}, r"config\.providers\.file\.class: it has no value"),
        (
            {"config.providers": "v", "config.providers.v.class": "io.Vault"},
            r"config\.providers\.v\.class: io\.Vault is not there",
        ),
        (NAMED | {"config.providers.file.param.allowed.paths": "etc"}, "must be an absolute path"),
        (NAMED | {"config.providers.env.param.allowlist.pattern": "("}, "allowlist.pattern"),
    ],
)
def test_providers_that_cannot_be_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ConfigProviders(properties, environment={})


def settings(**more: str) -> list[Any]:
    return [parse_setting(f"{name}={value}") for name, value in {**NAMED, **more}.items()]


def test_a_broker_takes_references_from_file_environment_and_command_line(secrets: Path) -> None:
    file = secrets.parent / "server.properties"
    lines = [f"{name}={value}" for name, value in NAMED.items()]
    reference = f"${{file:{secrets}:key.password}}"
    file.write_text("\n".join([*lines, f"ssl.key.password={reference}", "log.dirs=${env:DATA}"]))
    environment = {"DATA": "/data", "MINIKAFKA_SSL_KEYSTORE_PASSWORD": reference}
    loaded = load(path=str(file), environment=environment, settings=[parse_setting("rack=x")][:0])
    assert loaded.unknown == ()
    assert loaded.config.ssl_key_password == loaded.config.ssl_keystore_password == "ke y:1}"
    assert loaded.config.log_dirs == ("/data",)
    on_command_line = load(settings=settings(**{"ssl.key.password": reference}))
    assert on_command_line.config.ssl_key_password == "ke y:1}"


def test_a_wrong_value_is_shown_as_the_reference(secrets: Path) -> None:
    reference = f"${{file:{secrets}:key.password}}"
    with pytest.raises(ConfigError) as error:
        load(settings=settings(**{"num.partitions": reference}))
    assert str(error.value) == (
        f"--set: Invalid value {reference} for configuration num.partitions: Not a number of type INT "
        "(allowed: [1,...])"
    )
    with pytest.raises(ConfigError) as error:
        load(settings=settings(listeners=reference))
    assert "ke y:1" not in str(error.value) and reference in str(error.value)
