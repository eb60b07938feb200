from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.config.load import Flags, load
from flockmq.config.sources import Origin, Setting
from flockmq.errors import ConfigError


def toml(folder: Path, text: str) -> Path:
    path = folder / "flockmq.toml"
    path.write_text(text)
    return path


def flag(path: str, value: object, name: str = "--flag") -> Flags:
    return Flags(settings=(Setting(tuple(path.split(".")), value, Origin("flag", name)),))


def test_defaults() -> None:
    config = load(None, {}).config
    assert config.broker.node_name == "flockmq@127.0.0.1"
    assert not config.security.allow_anonymous
    assert [(one.key, [str(address) for address in one.addresses]) for one in config.listeners] == [
        ("tcp:default", ["0.0.0.0:1883", "[::]:1883"]),
        ("ws:default", ["0.0.0.0:8083", "[::]:8083"]),
    ]
    assert config.admin is not None
    assert [str(address) for address in config.admin.addresses] == ["127.0.0.1:18083", "[::1]:18083"]


def test_environment_wins_over_file_and_flag_over_both(tmp_path: Path) -> None:
    file = toml(tmp_path, "[limits]\npacket_bytes_max = 100\ninflight_max = 1\nreceive_max = 1\n")
    environ = {"FLOCKMQ_LIMITS__INFLIGHT_MAX": "2", "FLOCKMQ_LIMITS__RECEIVE_MAX": "2"}
    loaded = load(file, environ, flag("limits.receive_max", 3))
    limits = loaded.config.broker.limits
    assert (limits.packet_bytes_max, limits.inflight_max, limits.receive_max) == (100, 2, 3)
    origins = {path[-1]: str(value.origin) for path, value in loaded.values.given.items()}
    assert origins == {
        "packet_bytes_max": f"file {file}:2",
        "inflight_max": "env FLOCKMQ_LIMITS__INFLIGHT_MAX",
        "receive_max": "flag --flag",
    }


def test_sizes_and_durations(tmp_path: Path) -> None:
    file = toml(tmp_path, '[limits]\npacket_bytes_max = "64KB"\n[mqtt]\nsession_expiry_s_max = "1h"\n')
    config = load(file, {"FLOCKMQ_LIMITS__CONNECT_TIMEOUT_MS": "2s"}).config
    assert config.broker.limits.packet_bytes_max == 64_000
    assert config.broker.limits.connect_timeout_ms == 2000
    assert config.broker.session_expiry_s_max == 3600


def test_anonymous_clients_without_an_address_get_loopback() -> None:
    config = load(None, {}, flag("security.allow_anonymous", True)).config
    assert all(address.loopback for one in config.listeners for address in one.addresses)


def test_a_named_host_is_obeyed_also_with_anonymous_clients() -> None:
    settings = flag("security.allow_anonymous", True).settings
    config = load(None, {}, Flags(settings=settings, host="0.0.0.0")).config
    assert [str(address) for address in config.listeners[0].addresses] == ["0.0.0.0:1883"]
    assert config.admin is not None
    assert [str(address) for address in config.admin.addresses] == ["0.0.0.0:18083"]


def test_a_whole_listener_from_the_environment() -> None:
    config = load(
        None,
        {
            "FLOCKMQ_NODE__NAME": "n1@127.0.0.1",
            "FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "127.0.0.1:1882",
            "FLOCKMQ_LISTENERS__WS__DEFAULT__ENABLED": "false",
            "FLOCKMQ_LISTENERS__TCP__FLEET__BIND": "127.0.0.1:1,[::1]:2",
            "FLOCKMQ_LISTENERS__TCP__FLEET__PROXY_PROTOCOL": "true",
            "FLOCKMQ_LISTENERS__TCP__FLEET__LIMITS__PACKET_BYTES_MAX": "1KB",
        },
    ).config
    assert config.broker.node_name == "n1@127.0.0.1"
    default, fleet = config.listeners
    assert [str(address) for address in default.addresses] == ["127.0.0.1:1882"]
    assert [str(address) for address in fleet.addresses] == ["127.0.0.1:1", "[::1]:2"]
    assert fleet.proxy_protocol == "any"
    assert default.proxy_protocol == "off"
    assert fleet.limits.packet_bytes_max == 1000
    assert default.limits.packet_bytes_max == 1_048_576


def test_a_listener_has_a_namespace() -> None:
    config = load(None, {"FLOCKMQ_LISTENERS__TCP__DEFAULT__NAMESPACE": "acme"}).config
    assert {one.key: one.namespace for one in config.listeners} == {"tcp:default": "acme", "ws:default": "default"}


def test_ports_of_flags_keep_the_hosts_of_lower_layers() -> None:
    environ = {"FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "10.0.0.1:1883,[::1]:1883"}
    config = load(None, environ, Flags(ports={"tcp": 0, "admin": 0})).config
    assert [str(address) for address in config.listeners[0].addresses] == ["10.0.0.1:0", "[::1]:0"]
    assert config.admin is not None
    assert [str(address) for address in config.admin.addresses] == ["127.0.0.1:0", "[::1]:0"]


def test_brokers_on_other_ports_have_other_names() -> None:
    first = load(None, {}).config
    second = load(None, {}, Flags(ports={"tcp": 1884})).config
    assert second.broker.node_name == "flockmq-1884@127.0.0.1"
    assert first.data_dir != second.data_dir


def test_only_listeners_that_nobody_asked_for_give_way() -> None:
    assert {one.kind: one.asked_for for one in load(None, {}).config.listeners} == {"tcp": True, "ws": False}
    asked = load(None, {}, Flags(ports={"ws": 8083, "admin": 1})).config
    assert {one.kind: one.asked_for for one in asked.listeners} == {"tcp": True, "ws": True}
    assert asked.admin is not None
    assert asked.admin.asked_for
    host = load(None, {}, Flags(host="127.0.0.1")).config
    assert {one.kind: one.asked_for for one in host.listeners} == {"tcp": True, "ws": False}


def test_the_api_takes_the_certificate_and_asks_callers_for_none(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (tmp_path / name).write_text("")
    file = tmp_path / "flockmq.toml"
    pair = '[tls]\ncert_file = "cert.pem"\nkey_file = "key.pem"\nca_file = "ca.pem"\nclient_certificates = "required"\n'
    file.write_text(pair)
    plain = load(file, {}).config.admin
    assert plain is not None
    assert plain.tls is None
    file.write_text(pair + "[admin]\ntls = true\n")
    admin = load(file, {}).config.admin
    assert admin is not None
    assert admin.tls is not None
    assert (admin.tls.cert_file, admin.tls.client_certificates) == (str(tmp_path / "cert.pem"), "off")


def test_a_certificate_brings_the_tls_listeners(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem", "own.pem"):
        (tmp_path / name).touch()
    file = toml(
        tmp_path,
        '[tls]\ncert_file = "cert.pem"\nkey_file = "key.pem"\n'
        '[listeners.tls.own]\nbind = "*:1"\ncert_file = "own.pem"\nkey_file = "own.pem"\n',
    )
    tls = {one.key: one.tls.cert_file for one in load(file, {}).config.listeners if one.tls}
    assert tls == {
        "tls:default": str(tmp_path / "cert.pem"),
        "wss:default": str(tmp_path / "cert.pem"),
        "tls:own": str(tmp_path / "own.pem"),
    }


def test_a_default_queue_follows_a_larger_packet() -> None:
    limits = load(None, {"FLOCKMQ_LIMITS__PACKET_BYTES_MAX": "64MiB"}).config.broker.limits
    assert limits.queue_bytes_max == limits.write_bytes_max == limits.packet_bytes_max == 64 * 1024 * 1024


def test_empty_sections_set_nothing(tmp_path: Path) -> None:
    text = (
        "[node]\n[mqtt]\n[limits]\n[listeners]\n[listeners.tcp]\n[listeners.ws.default]\n[security]\n[admin]\n[log]\n"
    )
    assert load(toml(tmp_path, text), {}).config.listeners[0] == load(None, {}).config.listeners[0]


def test_paths_in_the_file_are_relative_to_it(tmp_path: Path) -> None:
    file = toml(tmp_path, '[node]\ndata_dir = "data"\n')
    assert load(file, {}).config.data_dir == str(tmp_path / "data")


def test_other_variables_of_that_prefix_are_left_alone() -> None:
    environ = {
        "FLOCKMQ_PURE": "1",
        "FLOCKMQ_SERVER": "http://x",
        "FLOCKMQ_TOKEN": "t",
        "FLOCKMQ_CREDENTIALS": "f",
        "FLOCKMQ_COOKIE": "c",
        "FLOCKMQ_HYPOTHESIS": "long",
        "FLOCKMQ_CONFIG": "f",
        "FLOCKMQ_SERVICE_HOST": "10.0.0.1",
        "FLOCKMQ_PORT_1883_TCP_ADDR": "10.0.0.1",
        "FLOCKMQ_PORT": "tcp://10.0.0.1:1883",
        "FLOCKMQ_HEADLESS_SERVICE_PORT_MQTT": "1883",
    }
    assert load(None, environ).values.given == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[limit]\npacket_bytes_max = 1\n",
            r"limit\.packet_bytes_max \(.*:2\) is not a setting; did you mean limits\.pa",
        ),
        ("[limits]\npacket_byte_max = 1\n", r"did you mean limits\.packet_bytes_max\?"),
        ("[node]\npacket_bytes_max = 1\n", r"did you mean limits\.packet_bytes_max\?"),
        ("[zebra]\nstripes = 1\n", r"zebra\.stripes .* is not a setting; `flockmq config show` lists all"),
        ("[listeners.tpc.default]\nbind = 'a:1'\n", r"did you mean listeners\.tcp\.default\.bind\?"),
        ("[listeners.tcp.default]\nbnd = 'a:1'\n", r"did you mean listeners\.tcp\.default\.bind\?"),
        ("[listeners.tcp.default.limits]\nbogus = 1\n", r"is not a setting; `flockmq config show` lists all"),
        ("[limit]\n", r"limit .* is not a setting; did you mean limits\?"),
        ("[listenrs]\n", r"listenrs .* is not a setting"),
        ("[listeners.tcp.extra]\n", r"listeners\.tcp\.extra has no address"),
        ("[listeners.udp]\n", r"listeners\.udp .* is not a setting"),
        ("[limits]\npacket_bytes_max = 'big'\n", r"limits\.packet_bytes_max \(.*toml:2\) can't be 'big': expected"),
        ("[limits]\npacket_bytes_max = true\n", r"can't be True: expected a whole number"),
        ("[limits]\npacket_bytes_max = -1\n", r"can't be -1: expected 16 to 268435460"),
        ("[limits]\nqueue_messages_max = -1\n", r"can't be -1: expected 0 or more"),
        ("[limits]\nreceive_max = 65536\n", r"expected 1 to 65535"),
        ("[mqtt]\nshared_strategy = 'best'\n", r"expected one of random, round_robin"),
        ("[security]\nallow_anonymous = 'maybe'\n", r"expected true or false"),
        ("[node]\nname = 1\n", r"expected text"),
        ("[node]\nname = 'n1'\n", r"node\.name can't be 'n1'; write it as name@host"),
        ("[node]\nname = '../x@h'\n", r"write it as name@host"),
        ("[log]\nlevel = 'loud'\n", r"expected one of debug, info"),
        ("[admin]\nbind = [1]\n", r"expected text, or a list of texts"),
        ("[admin]\nbind = 'nowhere'\n", r"admin\.bind: 'nowhere' has no port"),
        ("[admin]\nbind = ''\n", r"admin\.bind is empty"),
        ("[admin]\ntls = true\n", r"admin\.tls needs a certificate; set cert_file and key_file in \[tls\]"),
        ("[listeners.tcp.two]\nenabled = true\n", r"listeners\.tcp\.two has no address"),
        ("[listeners.tcp.default]\nbind = '::1:1883'\n", r"listeners\.tcp\.default\.bind: .* in brackets"),
        ("[listeners.tcp.'a b']\nbind = '*:1'\n", r"letters, digits"),
        ("[listeners.tls.default]\nbind = '*:1'\n", r"listeners\.tls\.default needs a certificate"),
        ("[listeners.tcp.default]\npath = '/x'\n", r"path is for WebSocket listeners"),
        ("[listeners.tcp.default]\nnamespace = 'a/b'\n", r"tcp\.default\.namespace can't be 'a/b'; a namespace's name"),
        ("[listeners.ws.default]\npath = 'x'\n", r"begins with a slash"),
        ("[listeners.tcp.default]\nclient_certificates = 'off'\n", r"is for TLS listeners"),
        (
            "[listeners.tcp.two]\nbind = '*:1883'\n",
            r"tcp\.default and listeners\.tcp\.two both want 0\.0\.0\.0 port 1883",
        ),
        ("[admin]\nbind = '0.0.0.0:1883'\n", r"listeners\.tcp\.default and admin both want"),
        ("[store]\njournal_bytes = '16MiB'\n", r"store\.journal_bytes is 16,777,216: a journal file must hold"),
        ("[limits]\nqueue_bytes_max = 100\n", r"queue_bytes_max \(100\) is less than packet_bytes_max"),
        ("[tls]\ncert_file = '/nowhere/c.pem'\n", r"tls\.cert_file names /nowhere/c\.pem, which can't be read"),
        (
            "[listeners.tcp.default]\nenabled = false\n[listeners.ws.default]\nenabled = false\n",
            r"Every listener is switched off",
        ),
        ("[limits\n", r"is not valid TOML: .*line 1"),
    ],
)
def test_what_a_file_is_refused_for(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(toml(tmp_path, text), {})


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("FLOCKMQ_ZEBRA__NAME", "n@h", r"FLOCKMQ_ZEBRA__NAME is not a setting; did you mean FLOCKMQ_NODE__NAME\?"),
        ("FLOCKMQ_NODE__NAEM", "n@h", r"did you mean FLOCKMQ_NODE__NAME\?"),
        ("FLOCKMQ_ZEBRA__STRIPES", "1", r"FLOCKMQ_ZEBRA__STRIPES is not a setting; `flockmq config show` lists"),
        ("FLOCKMQ_LIMITS__INFLIGHT_MAX", "x", r"FLOCKMQ_LIMITS__INFLIGHT_MAX can't be 'x': expected a whole number"),
        ("FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND", "x", r"listeners\.tcp\.default\.bind: 'x' has no port"),
        ("FLOCKMQ_LISTENERS__TPC__DEFAULT__BIND", "x:1", r"did you mean FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND\?"),
    ],
)
def test_what_a_variable_is_refused_for(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(None, {name: value})


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("FLOCKMQ_NODE_NAME", "FLOCKMQ_NODE_NAME is not a setting and is ignored; did you mean FLOCKMQ_NODE__NAME?"),
        ("FLOCKMQ_ZEBRA", "FLOCKMQ_ZEBRA is not a setting and is ignored"),
        ("FLOCKMQ_PORT_1883_TCP_ADDR", None),
        ("FLOCKMQ_SERVICE_HOST", None),
        ("FLOCKMQ_HEADLESS_SERVICE_PORT_CLUSTER", None),
        ("FLOCKMQ_TOKEN", None),
    ],
)
def test_other_variables_do_not_stop_a_start(name: str, note: str | None) -> None:
    """Other programs, and Kubernetes for each service, set variables whose names begin like those of settings."""
    loaded = load(None, {name: "1"})
    assert loaded.config.notes == ((note,) if note else ())


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    file = toml(tmp_path, "[limits]\nfoo = 1\ninflight_max = 'x'\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {"FLOCKMQ_BAR__FOO": "1"})
    assert len(str(caught.value).splitlines()) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml can't be read: No such file"):
        load(tmp_path / "none.toml", {})


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "flockmq.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(path, {})
