from __future__ import annotations

import json
from pathlib import Path

import pytest

from flockmq.cli.main import run


@pytest.fixture(autouse=True)
def no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOCKMQ_CONFIG", raising=False)


def test_show_tells_where_each_value_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flockmq.toml"
    file.write_text('[node]\nname = "n@h"\n')
    monkeypatch.setenv("FLOCKMQ_LIMITS__INFLIGHT_MAX", "5")
    assert run(["config", "show", "--config", str(file), "--set", "log.level=debug", "--json"]) == 0
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(capsys.readouterr().out)}
    assert rows["node.name"] == ("n@h", f"file {file}:2")
    assert rows["limits.inflight_max"] == (5, "env FLOCKMQ_LIMITS__INFLIGHT_MAX")
    assert rows["log.level"] == ("debug", "flag --set log.level")
    assert rows["limits.receive_max"][1] == "default"
    assert rows["listeners.tcp.default.bind"] == ([":1883"], "default")


def test_show_only_what_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--changed", "--set", "security.allow_anonymous=true"]) == 0
    assert capsys.readouterr().out == (
        "SETTING                   VALUE  FROM\nsecurity.allow_anonymous  true   flag --set security.allow_anonymous\n"
    )


def test_check_says_what_would_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--set", "listeners.ws.default.enabled=false", "--set", "listeners.tcp.default.bind=127.0.0.1:7"]
    assert run(["config", "check", *flags]) == 0
    assert "would serve tcp:default on 127.0.0.1:7." in capsys.readouterr().out
    assert run(["config", "check", "--json", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["listeners"] == ["tcp:default on 127.0.0.1:7"]


def test_check_tells_all_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flockmq.toml"
    file.write_text("[limits]\ninflight = 1\nreceive_max = 'x'\n")
    assert run(["config", "check", "--config", str(file)]) == 1
    assert [line[:22] for line in capsys.readouterr().err.splitlines()] == [
        "flockmq: limits.inflig",
        "flockmq: limits.receiv",
    ]


def test_check_reads_the_files_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "users").write_text("ann:secret\n")
    (tmp_path / "acl").write_text("")
    flags = ["--set", f"security.password_file={tmp_path / 'users'}", "--set", f"security.acl_file={tmp_path / 'acl'}"]
    assert run(["config", "check", *flags]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    first, second = printed.err.splitlines()
    assert "users, line 1: the hash of 'ann' is not an argon2id hash" in first
    assert "acl is empty" in second


def test_check_says_what_is_probably_not_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check"]) == 0
    assert capsys.readouterr().err.startswith("But no way to log in is set up")
    assert run(["config", "check", "--json"]) == 0
    assert [one["event"] for one in json.loads(capsys.readouterr().out)["warnings"]] == ["nobody_can_log_in"]
    assert run(["config", "check", "--set", "security.allow_anonymous=true"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["cluster.discovery=consul"], "cluster.discovery is 'consul', which is not one of manual, static, mcast"),
        (["cluster.discovery=dns"], "discovery.dns.name is empty"),
        (["cluster.discovery=static"], "cluster.contact_points is empty"),
        (["cluster.discovery=dns", "discovery.dns.name=n", "discovery.dns.record=MX"], "expected one of A, AAAA, SRV"),
        (
            ["cluster.discovery=dns", "discovery.dns.name=n", "discovery.dns.nameservers=a b"],
            "discovery.dns.nameserver",
        ),
        (
            ["cluster.discovery=dns", "discovery.dns.name=n", "discovery.dns.nameservers=ns1"],
            "discovery.dns.nameserver",
        ),
        (["cluster.discovery=etcd", "discovery.etcd.endpoints=http://"], "discovery.etcd.endpoints holds 'http://'"),
        (["cluster.discovery=etcd", "discovery.etcd.ca_file=/nowhere"], "/nowhere"),
        (["cluster.role=king"], "expected one of core, edge"),
        (["cluster.profile=moon"], "expected one of"),
        (["log.level=loud"], "expected one of"),
        (["tls.version_min=1.1"], "expected one of"),
        (["mqtt.shared_strategy=luck"], "expected one of"),
    ],
)
def test_check_refuses_what_a_start_would_refuse(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", "check", *(part for flag in flags for part in ("--set", flag))]) == 1
    assert sentence in capsys.readouterr().err


def test_check_without_a_cluster_needs_no_discovery(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check", "--set", "cluster.discovery=static", "--set", "cluster.enabled=false"]) == 0
    capsys.readouterr()


def test_check_tells_of_variables_that_are_no_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOCKMQ_NODE_NAME", "n@h")
    assert run(["config", "check", "--set", "security.allow_anonymous=true"]) == 0
    assert capsys.readouterr().err == (
        "But FLOCKMQ_NODE_NAME is not a setting and is ignored; did you mean FLOCKMQ_NODE__NAME?\n"
    )
