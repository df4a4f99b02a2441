"""The model of the settings, and the table of options made from it."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import (
    OPTIONS,
    SECTIONS,
    Address,
    AdminConfig,
    Config,
    DownstreamConfig,
    DownstreamSecurity,
    LedgerConfig,
    Option,
    PortRange,
    RackSource,
    RoutingConfig,
    TopicSwitch,
    UpstreamConfig,
    UpstreamSecurity,
    find_contradictions,
    option_named,
)

INSECURE = DownstreamSecurity(insecure=True)
KAFKA = UpstreamConfig(bootstrap_servers=(Address("kafka", 9092),))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("h:1", "h", 1),
        ("[::1]:9092", "::1", 9092),
        ("[0:0::0:1]:65535", "::1", 65535),
        ("kafka-1.example.com.:9092", "kafka-1.example.com.", 9092),
        ("kafka_1:9092", "kafka_1", 9092),
        ("10.0.0.1:9092", "10.0.0.1", 9092),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        ":1",
        "h:",
        "h:0",
        "h:65536",
        "h:-1",
        "h:1x",
        "::1:9092",
        "[h]:1",
        "PLAINTEXT://h:1",
        "h :1",
        "1.2.3:1",
    ],
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|neither|xpected|colon"):
        Address.parse(text)


@pytest.mark.parametrize("text", ["", "1", "1-", "2-1", "0-1", "1-65536", "a-b", "1-2-3"])
def test_invalid_port_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FIRST-LAST"):
        PortRange.parse(text)


def test_a_range_holds_both_of_its_ends() -> None:
    ports = PortRange.parse("9093-9094")

    assert [port in ports for port in (9092, 9093, 9094, 9095)] == [False, True, True, False]
    assert len(ports) == 2


def parse(name: str, text: str) -> object:
    return option_named(name).kind.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1.5", 1.5), ("10s", 10), ("250ms", 0.25), ("2m", 120), ("1 h", 3600)]
)
def test_duration_without_unit_is_in_seconds(text: str, seconds: float) -> None:
    assert parse("grace", text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "3601", "1d", "1e3", "inf", "nan", "ten"])
def test_a_duration_out_of_bounds_or_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse("grace", text)


@pytest.mark.parametrize(
    ("text", "size"), [("1024", 1024), ("100MiB", 104857600), ("1.5KiB", 1536), ("2147483647", 2147483647)]
)
def test_size_without_unit_is_in_bytes(text: str, size: int) -> None:
    assert parse("max-frame", text) == size


@pytest.mark.parametrize("text", ["", "1023", "2GiB", "100MB", "100mib", "-5"])
def test_a_size_out_of_bounds_or_with_an_unknown_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse("max-frame", text)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("1000", 1000), ("1000000", 1_000_000)])
def test_a_number_is_a_whole_one(text: str, number: int) -> None:
    assert parse("client-sessions", text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1e3", "1000001", "ten", "١"])
def test_invalid_or_out_of_range_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        parse("client-sessions", text)


@pytest.mark.parametrize("text", ["0.0.0.0", "::", "[::]", "h:1", "", "a b"])
def test_unconnectable_advertised_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be connected to|neither|xpected|colon|Only"):
        parse("advertise", text)


@given(st.integers(1024, 2**31 - 1))
def test_a_size_reads_back_as_it_is_shown(size: int) -> None:
    option = option_named("max-frame")

    assert option.kind.parse(option.kind.show(size)) == size


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.default_text], ids=lambda option: option.name)
def test_every_default_is_accepted(option: Option) -> None:
    assert option.kind.parse(option.default_text) == option.default


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_meaning_reason_and_accepted_values(option: Option) -> None:
    assert option.meaning.endswith(".")
    assert option.reason.endswith(".")
    assert option.kind.accepts


def test_every_field_of_the_model_is_an_option() -> None:
    config = Config(KAFKA)
    fields = {
        (name, field)
        for name, value in attrs.asdict(config, recurse=False).items()
        for field in (attrs.asdict(value, recurse=False) if name in SECTIONS else [""])
    }

    assert {(o.section, o.field) if o.section else (o.field, "") for o in OPTIONS} == fields


def test_names_do_not_clash() -> None:
    for names in ([o.name for o in OPTIONS], [o.env for o in OPTIONS], [o.key for o in OPTIONS]):
        assert len(set(names)) == len(names)


def listening(*addresses: Address, ports: PortRange | None = None, advertise: str | None = None) -> Config:
    downstream = DownstreamConfig(
        listen=addresses, broker_ports=ports or PortRange(9093, 9192), advertise=advertise
    )
    return Config(KAFKA, downstream)


def test_the_defaults_are_in_order() -> None:
    assert find_contradictions(Config(KAFKA)) == []


def test_fetch_buffer_is_at_most_half_of_memory() -> None:
    half = attrs.evolve(KAFKA, memory_bytes=16 * 1024**2, fetch_buffer_bytes=8 * 1024**2)

    assert find_contradictions(Config(half)) == []
    assert find_contradictions(Config(attrs.evolve(half, fetch_buffer_bytes=8 * 1024**2 + 1))) == [
        "fetch-buffer: 8388609B is more than half of memory (16MiB); accepted: at most 8MiB"
    ]


@pytest.mark.parametrize("port", [9093, 9192])
def test_a_listen_port_among_the_broker_ports_is_a_problem(port: int) -> None:
    (problem,) = find_contradictions(listening(Address("127.0.0.1", port)))

    assert problem.startswith(f"listen: port {port} is one of broker-ports (9093-9192)")


@pytest.mark.parametrize("port", [9092, 9093])
def test_probes_and_clients_do_not_come_to_the_same_port(port: int) -> None:
    config = attrs.evolve(Config(KAFKA), admin=AdminConfig(Address("127.0.0.1", port)))

    assert find_contradictions(config) == [
        f"admin-listen: port {port} is one that clients connect to; accepted: a port other than those of"
        " listen, broker-ports and transparent"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0.0.0.0:15092", "no address of loopback"),
        ("10.0.0.1:15092", "no address of loopback"),
        ("127.0.0.1:9093", "one of broker-ports"),
        ("127.0.0.1:9092", "one of listen"),
        ("127.0.0.1:9080", "admin-listen: port 9080"),
    ],
)
def test_transparent_address_needs_own_port_on_loopback(text: str, problem: str) -> None:
    redirected = DownstreamConfig(transparent=(Address("::1", 15092), Address.parse(text)))
    config = attrs.evolve(Config(KAFKA), downstream=redirected, admin=AdminConfig(Address("127.0.0.1", 9080)))

    (reported,) = find_contradictions(config)
    assert problem in reported


def test_duplicate_transparent_address_is_refused() -> None:
    twice = DownstreamConfig(transparent=(Address("::1", 15092), Address("::1", 15092)))

    (reported,) = find_contradictions(attrs.evolve(Config(KAFKA), downstream=twice))
    assert reported.startswith("transparent: [::1]:15092 is given twice")


def test_ready_requires_broker_is_refused_if_upstream_sasl_is_client() -> None:
    config = attrs.evolve(
        Config(KAFKA, upstream_security=UpstreamSecurity(sasl="client")),
        admin=AdminConfig(None, ready_requires_broker=True),
    )

    assert any(problem.startswith("ready-requires-broker: on") for problem in find_contradictions(config))
    own = attrs.evolve(config, upstream_security=UpstreamSecurity())
    assert not any("ready-requires-broker" in problem for problem in find_contradictions(own))


def test_a_switch_is_on_or_off() -> None:
    assert [parse("ready-requires-broker", text) for text in ("on", "off")] == [True, False]
    with pytest.raises(ValueError, match="neither on nor off"):
        parse("ready-requires-broker", "true")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_wildcard_needs_a_host_to_advertise(host: str) -> None:
    address = Address(host, 9092)

    assert len(find_contradictions(attrs.evolve(listening(address), downstream_security=INSECURE))) == 1
    advertised = attrs.evolve(listening(address, advertise="sidecar"), downstream_security=INSECURE)
    assert find_contradictions(advertised) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "sidecar.example"])
def test_listener_beyond_loopback_requires_tls_or_insecure_listen(host: str) -> None:
    here = listening(Address(host, 9092), advertise="sidecar")
    tls = DownstreamSecurity(tls_cert="a.crt", tls_key="a.key")

    (problem,) = find_contradictions(here)

    assert problem.endswith("listen-tls-cert and listen-tls-key, or insecure-listen on")
    assert find_contradictions(attrs.evolve(here, downstream_security=INSECURE)) == []
    assert find_contradictions(attrs.evolve(here, downstream_security=tls)) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_listened_to_in_plaintext(host: str) -> None:
    assert find_contradictions(listening(Address(host, 9092))) == []


NAMED = {"username_file": "u", "password_file": "p"}
GRANT = {"token_url": "https://login.example/token", "client_id_file": "i", "client_secret_file": "s"}


@pytest.mark.parametrize(
    "settings",
    [
        {"tls": True},
        {"tls": True, "tls_ca": "ca", "tls_cert": "c", "tls_key": "k", "tls_key_password_file": "p"},
        {"sasl": "client"},
        {"sasl": "PLAIN", **NAMED},
        {"sasl": "SCRAM-SHA-256", **NAMED},
        {"sasl": "OAUTHBEARER", "token_file": "t"},
        {"sasl": "OAUTHBEARER", **GRANT, "scope": "kafka", "token_ca": "ca"},
    ],
)
def test_these_go_together(settings: dict[str, Any]) -> None:
    assert find_contradictions(Config(KAFKA, upstream_security=UpstreamSecurity(**settings))) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tls_ca": "ca"}, "upstream-tls-ca: ca is of no use without TLS"),
        ({"tls": True, "tls_cert": "c"}, "upstream-tls-key: not given"),
        ({"tls": True, "tls_key": "k"}, "upstream-tls-cert: not given"),
        ({"tls": True, "tls_key_password_file": "p"}, "upstream-tls-key-password-file: p has no key"),
        ({"sasl": "PLAIN", "username_file": "u"}, "upstream-sasl-password-file: not given"),
        ({"sasl": "SCRAM-SHA-512", "password_file": "p"}, "upstream-sasl-username-file: not given"),
        ({"username_file": "u"}, "upstream-sasl-username-file: u is of no use with upstream-sasl none"),
        (
            {"sasl": "client", "token_file": "t"},
            "upstream-sasl-token-file: t is of no use with upstream-sasl client",
        ),
        ({"sasl": "OAUTHBEARER"}, "upstream-sasl: OAUTHBEARER needs exactly one source"),
        (
            {"sasl": "OAUTHBEARER", "token_file": "t", **GRANT},
            "upstream-sasl: OAUTHBEARER needs exactly one source",
        ),
        (
            {"sasl": "OAUTHBEARER", **GRANT, "client_secret_file": None},
            "upstream-sasl-client-secret-file: not given",
        ),
        (
            {"sasl": "OAUTHBEARER", "token_file": "t", "scope": "x"},
            "upstream-sasl-scope: x is of no use with upstream-sasl OAUTHBEARER",
        ),
    ],
)
def test_these_do_not(settings: dict[str, Any], problem: str) -> None:
    (reported,) = find_contradictions(Config(KAFKA, upstream_security=UpstreamSecurity(**settings)))

    assert reported.startswith(problem)


@pytest.mark.parametrize("text", ["http://login.example/token", "login.example", "https://a:b@login.example/", ""])
def test_token_url_must_be_https_without_password(text: str) -> None:
    with pytest.raises(ValueError, match="https"):
        parse("upstream-sasl-token-url", text)


def test_the_same_address_twice_is_a_problem() -> None:
    address = Address("127.0.0.1", 9092)

    assert len(find_contradictions(listening(address, address))) == 1
    assert find_contradictions(listening(address, Address("::1", 9092))) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_sidefetch_is_not_its_own_broker(host: str) -> None:
    config = Config(UpstreamConfig(bootstrap_servers=(Address("kafka", 9092), Address(host, 9092))))

    (problem,) = find_contradictions(config)

    assert problem.startswith(f"bootstrap-servers: {host}:9092 is an address of listen")


@pytest.mark.parametrize(
    ("text", "here", "elsewhere"),
    [("on", True, True), ("off", False, False), ("on,topic:here", False, True), ("off, topic:here", True, False)],
)
def test_a_switch_is_the_other_way_for_the_topics_that_it_names(text: str, here: bool, elsewhere: bool) -> None:
    switch = TopicSwitch.parse(text)

    assert (switch.is_on_for("here"), switch.is_on_for("there"), switch.is_on_for(None)) == (
        here,
        elsewhere,
        elsewhere,
    )
    assert TopicSwitch.parse(str(switch)) == switch


@pytest.mark.parametrize("text", ["", "yes", "topic:a", "on,a", "on,topic:", "on,,topic:a", "off,client:a"])
def test_invalid_topic_switch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not on or off"):
        TopicSwitch.parse(text)


@pytest.mark.parametrize("name", ["b", "eu-central-1a", "use1-az1", "rack 7, hall 2", "r" * 255])
def test_a_rack_is_any_name_that_a_broker_may_have(name: str) -> None:
    assert parse("rack", name) == name


@pytest.mark.parametrize("text", ["", " ", " b", "b\n", "a\tb", "r" * 256])
def test_a_rack_that_no_broker_could_be_seen_to_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a rack"):
        parse("rack", text)


def test_the_places_of_the_rack_keep_their_order() -> None:
    assert parse("rack-from", "kubernetes, file:/etc/zone:1,env:ZONE") == (
        RackSource("kubernetes"),
        RackSource("file", "/etc/zone:1"),
        RackSource("env", "ZONE"),
    )
    assert parse("rack-from", "none") == ()
    assert parse("rack-from", "kubernetes:topology.k8s.aws/zone-id") == (
        RackSource("kubernetes", "topology.k8s.aws/zone-id"),
    )


def test_places_read_back_as_they_are_shown() -> None:
    option = option_named("rack-from")
    none: tuple[RackSource, ...] = ()

    for places in (none, RoutingConfig().rack_from):
        assert option.kind.parse(option.kind.show(places)) == places


@pytest.mark.parametrize(
    "text",
    [
        "",
        "env",
        "env:",
        "env:A B",
        "env:1",
        "file:",
        "zone",
        "kubernetes:",
        "kubernetes:a b",
        "kubernetes:/x",
        "none,kubernetes",
        "env:A,",
        "env:A,env:A",
    ],
)
def test_invalid_rack_source_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither|names a source twice"):
        parse("rack-from", text)


@pytest.mark.parametrize("text", ["", "Broker", "rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector"])
def test_there_are_three_selectors(text: str) -> None:
    assert [parse("replica-selector", each) for each in ("broker", "rack-aware", "leader")]
    with pytest.raises(ValueError, match="is not one of broker, rack-aware, leader"):
        parse("replica-selector", text)


def test_ledger_max_size_must_fit_two_files() -> None:
    ledger = LedgerConfig(folder="/var/ledger", file_bytes=1024**2, max_bytes=2 * 1024**2)

    assert find_contradictions(Config(KAFKA, ledger=ledger)) == []
    (problem,) = find_contradictions(Config(KAFKA, ledger=attrs.evolve(ledger, file_bytes=1024**2 + 1)))
    assert problem.startswith("ledger-max-size: 2MiB has no room for two files")


def test_ledger_topic_is_refused_if_upstream_sasl_is_client() -> None:
    passing = UpstreamSecurity(sasl="client")

    (problem,) = find_contradictions(Config(KAFKA, upstream_security=passing, ledger=LedgerConfig(topic="ledger")))
    assert problem.startswith("ledger-topic: ledger, and upstream-sasl is client")
    assert find_contradictions(Config(KAFKA, upstream_security=passing, ledger=LedgerConfig(folder="/f"))) == []


@pytest.mark.parametrize("text", ["", ".", "..", "a b", "a/b", "t" * 250])
def test_invalid_topic_name_is_refused(text: str) -> None:
    assert parse("ledger-topic", "ledger.rows_1-a") == "ledger.rows_1-a"
    with pytest.raises(ValueError, match="is not the name of a topic"):
        parse("ledger-topic", text)
