"""Flags over environment over file, and all mistakes at once."""

import pytest

from proxy.cli.settings import Layer, load_settings
from proxy.config import OPTIONS, Address, Config, LogConfig, PortRange, UpstreamConfig
from proxy.errors import ConfigError

KAFKA = {"SIDEFETCH_BOOTSTRAP_SERVERS": "kafka:9092"}
FILE = """
grace = 5

[upstream]
bootstrap-servers = ["a:1", "b:2"]
connect-timeout = "500ms"

[downstream]
broker-ports = "19093-19192"
max-frame = 1048576

[log]
format = "json"
level = "debug"
"""


def problems(**given: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        load_settings(**{"flags": {}, "environ": KAFKA, **given})  # type: ignore[arg-type]  # the test's own shorthand
    return raised.value.args


def test_without_more_than_the_brokers_the_defaults_hold() -> None:
    settings = load_settings(flags={}, environ=KAFKA)

    assert settings.config == Config(UpstreamConfig(bootstrap_servers=(Address("kafka", 9092),)))
    assert settings.layers["bootstrap-servers"] == Layer("environment", "SIDEFETCH_BOOTSTRAP_SERVERS")
    assert settings.layers["listen"] == Layer("default")
    assert list(settings.layers) == [option.name for option in OPTIONS]


def test_settings_are_read_from_file() -> None:
    config = load_settings(flags={}, environ={}, toml=FILE).config

    assert config.upstream.bootstrap_servers == (Address("a", 1), Address("b", 2))
    assert config.upstream.connect_timeout_s == 0.5
    assert config.downstream.broker_ports == PortRange(19093, 19192)
    assert config.downstream.max_frame_bytes == 1024 * 1024
    assert config.log == LogConfig(format="json", level="debug")
    assert config.grace_s == 5


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    environ = {"SIDEFETCH_GRACE": "6", "SIDEFETCH_LOG_LEVEL": "warning"}

    settings = load_settings(flags={"grace": "7"}, environ=environ, toml=FILE, toml_name="s.toml")

    assert settings.config.grace_s == 7
    assert settings.config.log.level == "warning"
    assert {name: str(settings.layers[name]) for name in ("grace", "log-level", "log-format", "listen")} == {
        "grace": "flag --grace",
        "log-level": "environment SIDEFETCH_LOG_LEVEL",
        "log-format": "file s.toml: log.format",
        "listen": "default",
    }


def test_all_problems_are_reported_at_once_with_source_and_accepted_values() -> None:
    environ = {"SIDEFETCH_LOG_LEVEL": "loud", "SIDEFETCH_LISEN": "127.0.0.1:1"}
    toml = "grace = true\nmax-frame = 5\n[log]\nformt = 'json'\n[extra]\nx = 1\n"

    reported = problems(flags={"listen": "9092"}, environ=environ, toml=toml, toml_name="s.toml")

    assert set(reported) == {
        "listen: '9092' from flag --listen; accepted: HOST:PORT[,HOST:PORT...], IPv6 as [::1]:9092",
        "log-level: 'loud' from environment SIDEFETCH_LOG_LEVEL; accepted: debug, info, warning or error",
        "unknown environment variable SIDEFETCH_LISEN = '127.0.0.1:1'; did you mean SIDEFETCH_LISTEN?",
        "grace: True from file s.toml: grace; accepted: 0s to 3600s (a number of seconds, or with ms, s, m or h)",
        "unknown key in s.toml: max-frame = 5; did you mean downstream.max-frame?",
        "unknown key in s.toml: log.formt = 'json'; did you mean log.format?",
        f"unknown key in s.toml: extra = {{'x': 1}}; accepted: {', '.join(o.key for o in OPTIONS)}",
        "bootstrap-servers: not given; accepted: HOST:PORT[,HOST:PORT...], IPv6 as [::1]:9092,"
        " by --bootstrap-servers, SIDEFETCH_BOOTSTRAP_SERVERS or upstream.bootstrap-servers in the file",
    }


def test_invalid_value_is_reported_even_if_flag_overrides_it() -> None:
    reported = problems(flags={"grace": "1"}, environ={**KAFKA, "SIDEFETCH_GRACE": "soon"})

    assert len(reported) == 1
    assert reported[0].startswith("grace: 'soon' from environment SIDEFETCH_GRACE")


def test_invalid_required_value_is_not_also_reported_as_missing() -> None:
    assert len(problems(environ={"SIDEFETCH_BOOTSTRAP_SERVERS": "kafka"})) == 1


def test_contradicting_values_are_reported() -> None:
    (reported,) = problems(flags={"listen": "127.0.0.1:9100"})

    assert reported.startswith("listen: port 9100 is one of broker-ports")


def test_invalid_toml_is_reported() -> None:
    (reported,) = problems(toml="listen 1", toml_name="s.toml")

    assert reported.startswith("s.toml: not TOML: ")


def test_an_empty_variable_is_not_set() -> None:
    assert load_settings(flags={}, environ={**KAFKA, "SIDEFETCH_ADVERTISE": ""}).layers["advertise"] == Layer(
        "default"
    )


def test_the_variable_that_names_the_file_is_known() -> None:
    load_settings(flags={}, environ={**KAFKA, "SIDEFETCH_CONFIG": "s.toml"})


def test_kubernetes_variables_of_service_named_sidefetch_are_ignored() -> None:
    service = {
        "SIDEFETCH_SERVICE_HOST": "10.0.0.1",
        "SIDEFETCH_SERVICE_PORT": "9092",
        "SIDEFETCH_SERVICE_PORT_KAFKA": "9092",
        "SIDEFETCH_PORT": "tcp://10.0.0.1:9092",
        "SIDEFETCH_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "SIDEFETCH_PORT_9092_TCP_ADDR": "10.0.0.1",
        "SIDEFETCH_METRICS_SERVICE_HOST": "10.0.0.2",
    }

    load_settings(flags={}, environ=KAFKA | service)
    assert len(problems(environ={**KAFKA, "SIDEFETCH_LISTEN_PORT": "9092"})) == 1
