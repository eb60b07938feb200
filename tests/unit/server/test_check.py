from __future__ import annotations

import re
from pathlib import Path

import pytest

from flockmq.config.bind import Address
from flockmq.config.load import Flags, load
from flockmq.config.sections import Config
from flockmq.config.sources import Origin, Setting
from flockmq.errors import ConfigError
from flockmq.server.check import advice, check_files


def configured(**settings: object) -> Config:
    """A configuration with these settings; two underscores part section and key."""
    chosen = [Setting(tuple(name.split("__")), value, Origin("flag", name)) for name, value in settings.items()]
    return load(None, {}, Flags(settings=tuple(chosen))).config


def test_all_files_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    names = ("passwords", "secret", "acl", "cert", "key", "token")
    files = {name: tmp_path / name for name in names}
    for file in files.values():
        file.write_text("x\n")
    config = configured(
        security__password_file=str(files["passwords"]),
        security__jwt_secret_file=str(files["secret"]),
        security__acl_file=str(files["acl"]),
        tls__cert_file=str(files["cert"]),
        tls__key_file=str(files["key"]),
        admin__token_file=str(files["token"]),
    )
    with pytest.raises(ConfigError) as refused:
        check_files(config)
    told = re.findall("|".join(re.escape(str(file)) for file in files.values()), str(refused.value))
    # Both TLS listeners have the same certificate: it is told once, and the key is not looked at then.
    assert told == [str(files[name]) for name in names if name != "key"]


def test_files_that_can_be_used_are_no_problem(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text('default = "deny"\n[[rule]]\nallow = true\nwho = "all"\naction = "all"\ntopics = ["a"]\n')
    check_files(configured(security__allow_anonymous=True, security__acl_file=str(rules)))


@pytest.mark.parametrize(
    ("settings", "host", "events"),
    [
        ({}, "127.0.0.1", ["nobody_can_log_in"]),
        ({}, "0.0.0.0", ["nobody_can_log_in"]),
        ({"security__allow_anonymous": True}, "127.0.0.1", []),
        ({"security__allow_anonymous": True}, "::1", []),
        ({"security__allow_anonymous": True}, "192.0.2.1", ["anonymous_from_everywhere"]),
    ],
)
def test_advice(settings: dict[str, object], host: str, events: list[str]) -> None:
    assert [one.event for one in advice(configured(**settings), [Address(host, 1883)])] == events


def test_a_way_to_log_in_needs_no_advice(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.touch(0o600)
    assert advice(configured(security__password_file=str(file)), [Address("0.0.0.0", 1883)]) == []


@pytest.mark.parametrize(("mode", "done"), [(0o600, ""), (0o640, ""), (0o644, "read"), (0o660, "change")])
def test_secrets_that_others_can_get_at_are_worth_a_word(tmp_path: Path, mode: int, done: str) -> None:
    files = {name: tmp_path / name for name in ("passwords", "secret", "key", "key-password", "token", "links")}
    for file in files.values():
        file.touch()
        file.chmod(mode)
    for name in ("cert", "ca"):
        (tmp_path / name).touch()
    config = configured(
        security__password_file=str(files["passwords"]),
        security__jwt_secret_file=str(files["secret"]),
        tls__cert_file=str(tmp_path / "cert"),
        tls__key_file=str(files["key"]),
        tls__key_password_file=str(files["key-password"]),
        admin__token_file=str(files["token"]),
        cluster__ca_file=str(tmp_path / "ca"),
        cluster__cert_file=str(tmp_path / "cert"),
        cluster__key_file=str(files["links"]),
    )
    found = [one for one in advice(config, []) if one.event == "secret_exposed"]
    assert {one.fields["file"] for one in found} == ({str(file) for file in files.values()} if done else set())
    assert all(f"can {done} the" in one.message for one in found)
