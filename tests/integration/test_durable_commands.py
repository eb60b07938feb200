"""The commands on durable topics against an API whose logs are in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.cli.main import run
from flockmq.client.admin import AdminClient
from flockmq.cluster.commands import CreateHidden
from flockmq.cluster.model import SESSIONS_TOPIC
from flockmq.errors import ApiError
from flockmq.security.passwords import HashCost, delete_user, set_password
from integration.support.site import Site


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    made = Site(capsys)
    monkeypatch.setenv("FLOCKMQ_SERVER", made.url)
    monkeypatch.setenv("FLOCKMQ_TOKEN", "right")
    yield made
    made.close()


def test_the_life_of_a_topic(site: Site) -> None:
    assert "There are no durable topics" in site.text("topic", "list")
    said = site.text("topic", "create", "plant", "--shards", "2", "--retention", "7d,10GB", "--key", "machine")
    assert said == "Topic 'plant' keeps plant/# in 2 shards.\n"
    assert site.json("topic", "list")[0]["retention_bytes"] == 10**10
    listed = site.text("topic", "list").splitlines()
    assert listed[0].split()[:3] == ["NAMESPACE", "TOPIC", "FILTERS"]
    assert "7d, 10 GB" in listed[1]
    shown = site.text("topic", "show", "plant")
    assert "machine" in shown
    assert shown.count("healthy") == 2
    assert len(site.json("topic", "show", "plant")["partitions"]) == 2
    assert "changed" in site.text("topic", "alter", "plant", "--shards", "3", "--retention", "none", "--ack", "leader")
    assert "nothing changed" in site.text("topic", "alter", "plant", "--shards", "3")
    after = site.json("topic", "show", "plant")
    assert (after["shards"], after["retention_ms"], after["retention_bytes"], after["ack"]) == (3, None, None, "leader")
    assert "deleted" in site.text("topic", "delete", "plant", "--yes")
    assert site.json("topic", "list") == []


def test_fewer_copies_than_wanted_are_told(site: Site) -> None:
    wanted = "5 wanted, 3 possible with 3 core nodes alive; more are made when nodes join"
    assert f"Copies: {wanted}.\n" in site.text("topic", "create", "plant", "--replication-factor", "5")
    assert wanted in site.text("topic", "show", "plant")
    assert "Few copies: 3 of 5" in site.text("partition", "list", "--unhealthy")
    assert site.text("topic", "alter", "plant", "--replication-factor", "3") == "Topic 'plant' was changed.\n"
    assert site.text("partition", "list", "--unhealthy") == "All partitions are healthy.\n"


def test_topics_that_can_not_be_are_refused_in_a_sentence(site: Site) -> None:
    site.text("topic", "create", "plant", "--filter", "a/+", "--filter", "b")
    assert "exists" in site.fails("topic", "create", "plant")
    assert "plant" in site.fails("topic", "create", "other", "--filter", "a/#")
    assert "flockmq topic list" in site.fails("topic", "show", "nothing")
    assert "namespace" in site.fails("topic", "create", "x", "--namespace", "nowhere")


def test_partitions(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    listed = site.text("partition", "list")
    assert listed.count("default/plant") == 2
    [first, _] = site.json("partition", "list", "--topic", "plant")
    assert "leader" in site.text("partition", "show", str(first["group"]))
    assert site.json("partition", "show", str(first["group"]))["shard"] == 0
    assert site.text("partition", "list", "--unhealthy") == "All partitions are healthy.\n"
    assert "no partition" in site.fails("partition", "show", "99")


def test_records_are_read_and_cursors_follow(site: Site) -> None:
    site.text("topic", "create", "plant")
    site.port.log(1).append([(b"plant/1", b"me", b"%d" % n, [(b"unit", b"K")]) for n in range(250)], 1_772_366_400_000)
    lines = site.text("log", "read", "plant").splitlines()
    assert len(lines) == 100
    assert lines[0] == "0:0  2026-03-01T12:00:00.000Z  plant/1  me  0"
    everything = site.text("log", "read", "plant", "--limit", "0", "--json").splitlines()
    assert [json.loads(line)["offset"] for line in everything] == list(range(250))
    assert len(site.text("log", "read", "plant", "--from", "offset:240").splitlines()) == 10
    assert (
        len(site.text("log", "read", "plant", "--from", "time:2026-03-01T11:00:00Z", "--limit", "3").splitlines()) == 3
    )
    assert site.text("log", "read", "plant", "--from", "latest") == ""
    assert "--from can't be" in site.fails("log", "read", "plant", "--from", "soon", code=2)
    assert "no shard 3" in site.fails("log", "read", "plant", "--shard", "3")
    assert site.text("cursor", "list") == "There are no cursors.\n"
    assert "250" in site.text("cursor", "create", "reader", "plant", "--hold")
    assert site.json("cursor", "reset", "reader", "offset:200")["lag"] == 50
    assert "50" in site.text("cursor", "list")
    assert "yes" in site.text("cursor", "show", "reader")
    assert "WHERE can't be" in site.fails("cursor", "reset", "reader", "soon", code=2)
    assert "ends at offset 250" in site.fails("log", "read", "plant", "--from", "offset:9999")
    assert site.text("log", "read", "plant", "--from", "offset:250") == "", "its end"
    assert "deleted" in site.text("cursor", "delete", "reader", "--yes")
    assert "cursor list" in site.fails("cursor", "show", "reader")


def test_where_to_begin_in_several_shards(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    for group in (1, 2):
        site.port.log(group).append([(b"plant/1", b"me", b"%d" % n, []) for n in range(5)], 1_772_366_400_000)
    assert "use offset:SHARD=N,..." in site.fails("log", "read", "plant", "--from", "offset:3", code=2)
    assert len(site.text("log", "read", "plant", "--from", "offset:3", "--shard", "1").splitlines()) == 2
    assert len(site.text("log", "read", "plant", "--from", "offset:0=4,1=2").splitlines()) == 4
    assert len(site.text("log", "read", "plant", "--from", "time:2026-01-31").splitlines()) == 10
    assert "use offset:SHARD=N,..." in site.fails("cursor", "create", "reader", "plant", "--from", "offset:3", code=2)
    made = site.json("cursor", "create", "reader", "plant", "--from", "offset:0=4,1=2")
    assert [one["offset"] for one in made["positions"]] == [4, 2]
    moved = site.json("cursor", "reset", "reader", "offset:1", "--shard", "1")
    assert [one["offset"] for one in moved["positions"]] == [4, 1]
    assert "use offset:SHARD=N,..." in site.fails("cursor", "reset", "reader", "offset:1", code=2)
    assert "2 shards, counted from 0" in site.fails("cursor", "reset", "reader", "offset:2=1", code=2)


def test_shards_are_chosen_in_one_way(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    site.text("cursor", "create", "reader", "plant")
    for words in ("offset:0=5", "offset:1=5"):
        said = "with --shard use offset:N"
        assert said in site.fails("cursor", "reset", "reader", words, "--shard", "1", code=2)
        assert said in site.fails("log", "read", "plant", "--from", words, "--shard", "1", code=2)
        with pytest.raises(ApiError, match="both choose shards") as refused:
            AdminClient(site.url, "right").reset_cursor("reader", words, shard=1)
        assert refused.value.status == 400


def test_to_create_a_cursor_again_changes_nothing(site: Site) -> None:
    site.text("topic", "create", "plant")
    assert site.json("cursor", "create", "dash", "plant", "--hold")["hold"] is True
    assert site.json("cursor", "create", "dash", "plant")["hold"] is True
    assert site.json("cursor", "create", "dash", "plant", "--no-hold")["hold"] is False
    assert site.json("cursor", "create", "other", "plant")["hold"] is False


def test_a_cursor_that_is_there_stays_where_it_stands_wherever_it_shall_begin(site: Site) -> None:
    site.text("namespace", "create", "acme")
    for namespace, option in (("default", ""), ("acme", " -n acme")):
        where = ("-n", namespace)
        site.text("topic", "create", "plant", *where)
        [group] = site.json("topic", "show", "plant", *where)["groups"]
        site.port.log(group).append([(b"plant/1", b"me", b"x", []) for _ in range(5)], 1_772_366_400_000)
        create = ("cursor", "create", "dash", "plant", "--from", "earliest", "--hold", *where)
        assert site.json(*create)["hold"] is True
        site.text("cursor", "create", "dash", "plant", "--no-hold", *where)
        site.text("cursor", "reset", "dash", "offset:3", *where)
        assert run([*create, "--json"]) == 0
        printed = site.capsys.readouterr()
        made = json.loads(printed.out)
        assert (made["hold"], made["positions"][0]["offset"]) == (True, 3)
        assert f"stays where it stands; to move it, use `flockmq cursor reset dash earliest{option}`" in printed.err
    site.text("topic", "create", "other")
    said = site.fails("cursor", "create", "dash", "other", "--from", "earliest")
    assert "reads the topic plant; choose another name" in said


def test_where_a_cursor_stands_without_a_leader_is_not_guessed(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    for group in (1, 2):
        site.port.log(group).append([(b"plant/1", b"me", b"x", []) for _ in range(11)], 1_772_366_400_000)
    site.text("cursor", "create", "reader", "plant", "--from", "offset:0=10,1=10")
    site.port.leaderless = {1}
    shown = site.text("cursor", "show", "reader").splitlines()
    assert [line.split() for line in shown[-2:]] == [["0", "?", "11", "?", "?"], ["1", "10", "11", "1", "0"]]
    assert "No leader of shard 0 answers" in "\n".join(shown)
    assert site.text("cursor", "list").splitlines()[1].split()[3:5] == ["?", "?"]
    found = site.json("cursor", "show", "reader")
    assert (found["lag"], found["positions"][0]["known"], found["positions"][0]["offset"]) == (None, False, None)
    assert "Create it again in a moment" in site.fails("cursor", "create", "reader", "plant")
    site.port.leaderless = set()
    assert site.json("cursor", "create", "reader", "plant")["lag"] == 2


def test_what_is_not_there_is_said_to_be_missing(site: Site) -> None:
    for command in ("topic", "cursor", "partition"):
        assert "no namespace 'nope'" in site.fails(command, "list", "-n", "nope")
    for command in ("client", "session"):
        assert "no namespace 'nope'" in site.fails(command, "list", "-n", "nope")
        assert "no namespace 'nope'" in site.fails(command, "list", "-n", "nope", "--json")
        assert site.json(command, "list", "-n", "default") == []
    assert "no topic 'nope'" in site.fails("partition", "list", "--topic", "nope")
    assert "no topic 'nope'" in site.fails("partition", "list", "--topic", "nope", "-n", "default")
    assert "There are no durable topics" in site.text("topic", "list", "-n", "default")
    site.text("namespace", "create", "acme")
    assert "`flockmq topic create NAME -n acme`" in site.text("topic", "list", "-n", "acme")
    for command in ("show", "alter"):
        options = ["--registered"] if command == "show" else ["--superuser"]
        said = site.fails("client", command, "nobody", *options, "-n", "acme")
        assert "see `flockmq client list --registered`" in said


def test_namespaces_under_both_names(site: Site) -> None:
    assert site.json("vpn", "create", "acme", "--max", "topics=1")["limits"] == {"topics_max": 1}
    assert "topics 1" in site.text("namespace", "list")
    site.text("topic", "create", "plant", "-n", "acme")
    assert "topics" in site.fails("topic", "create", "more", "-n", "acme")
    assert site.json("namespace", "alter", "acme", "--max", "topics=none")["limits"] == {}
    assert "most" not in site.text("vpn", "show", "acme")
    assert "topic" in site.fails("vpn", "delete", "acme", "--yes")
    site.text("topic", "delete", "plant", "-n", "acme", "--yes")
    assert "deleted" in site.text("vpn", "delete", "acme", "--yes")


def test_registered_clients(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.text("namespace", "create", "acme")
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert site.text("client", "create", "alice", "-n", "acme", "--publish", "a/#") == (
        "Client 'acme/alice' is registered.\n"
    )
    assert "acme/alice" in site.text("client", "list", "--registered", "-n", "acme")
    assert "acme/alice" in site.text("client", "list", "--registered"), "of all namespaces"
    assert site.json("client", "list", "--registered", "-n", "default") == []
    for username, count in (("alice", 1), ("acme/alice", 1), ("ali", 0)):
        assert len(site.json("client", "list", "--registered", "--username", username)) == count
    said = site.text("client", "list", "--registered", "--username", "bob", "-n", "acme")
    assert said == "No client is registered as 'bob' in namespace 'acme'.\n"
    for option in ("--prefix", "--peer"):
        assert f"{option} is about" in site.fails("client", "list", "--registered", option, "x", code=2)
    assert "no namespace" in site.fails("client", "list", "--registered", "-n", "nope")
    found = site.json("client", "show", "alice", "--registered", "-n", "acme")
    assert (found["has_password"], found["publish"], found["subscribe"]) == (True, ["a/#"], ["#"])
    site.text("client", "alter", "alice", "-n", "acme", "--no-password", "--superuser", "--subscribe-deny", "x")
    shown = site.text("client", "show", "alice", "--registered", "-n", "acme")
    assert "has a password    no" in shown
    assert "superuser         yes" in shown
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "No password" in site.fails("client", "create", "bob")
    assert "registered" in site.text("client", "create", "bob", "--no-password")
    assert site.text("client", "delete", "bob", "--yes") == "Client 'bob' was deleted.\n"
    assert site.text("client", "delete", "alice", "-n", "acme", "--yes") == "Client 'acme/alice' was deleted.\n"
    assert site.text("client", "list") == "No client is connected.\n"


RULES = """default = "deny"

[[rule]]
allow = true
who = "all"
action = "all"
topics = ["devices/%c/#"]

[[rule]]
allow = false
who = ["user:bob", "ip:192.0.2.0/24"]
action = "subscribe"
topics = ["a/\\"b\\"", "c"]
"""


def test_rules_come_from_a_file_and_go_back_into_one(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "acl.conf"
    file.write_text("# of one node, so far\n" + RULES)
    assert "flockmq acl set" in site.fails("acl", "show")
    assert site.text("acl", "set", str(file)) == (
        "Namespace 'default' has 2 rules; what none of them decides is denied.\n"
    )
    assert site.text("acl", "show") == RULES
    shown = site.json("acl", "show")
    assert (shown["namespace"], shown["default"], len(shown["rules"])) == ("default", "deny", 2)
    file.write_text(site.text("acl", "show"))
    site.text("namespace", "create", "acme")
    assert site.json("acl", "set", str(file), "-n", "acme")["rules"] == shown["rules"]
    assert "say --yes" in site.fails("acl", "delete", "-n", "acme", code=2)
    assert "no rules any more" in site.text("acl", "delete", "-n", "acme", "--yes")
    assert list(site.port.state().acls) == ["default"]
    file.write_text(RULES.replace("a/", "a/#/"))
    assert "acl.conf, rule 2 (line 9): topic" in site.fails("acl", "set", str(file))
    file.write_text(RULES.replace("bob", "acme/bob"))
    assert "Rule 2: who is 'user:acme/bob'" in site.fails("acl", "set", str(file), "-n", "acme")
    file.write_text(RULES.replace("bob", "b" * 300))
    assert "too long for the cluster" in site.fails("acl", "set", str(file))
    assert site.text("acl", "show") == RULES, "nothing has changed"


def test_a_password_file_becomes_registered_clients(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    for name in ("alice", "acme/bob"):
        set_password(file, name, f"of {name}", cost=HashCost(1, 8, 1))
    site.text("namespace", "create", "acme")
    site.text("client", "create", "alice", "-n", "acme", "--no-password")
    assert site.json("client", "import", str(file)) == {
        "registered": ["alice", "acme/bob"],
        "existed": [],
        "without_rules": ["acme", "default"],
    }
    for name, (namespace, own) in {"alice": ("default", "alice"), "acme/bob": ("acme", "bob")}.items():
        assert f"{name}:{site.port.state().client(namespace, own).secret}\n" in file.read_text()
    again = site.text("client", "import", str(file), "-n", "acme")
    assert again == "0 clients registered.\n2 clients existed and stayed as before: 'alice', 'acme/bob'.\n"
    assert site.port.state().client("acme", "alice").secret == ""
    assert run(["client", "import", str(file)]) == 0
    said = site.capsys.readouterr().err
    assert "'acme' has no rules" in said
    assert "`flockmq acl set -n acme FILE`" in said
    assert "`flockmq acl set FILE`" in said
    before = len(site.port.state().clients)
    set_password(file, "carol", "x", cost=HashCost(1, 8, 1))
    set_password(file, "no/namespace", "x", cost=HashCost(1, 8, 1))
    said = site.fails("client", "import", str(file))
    assert "'no/namespace', and nothing was registered" in said
    assert "There is no namespace 'no'; create it first, with `flockmq namespace create no`." in said
    assert len(site.port.state().clients) == before
    delete_user(file, "no/namespace")
    assert "That was for 'alice', and 0 clients" in site.fails("client", "import", str(file), "-n", "nowhere")
    set_password(file, "alice", "x", cost=HashCost(1, 8, 1))
    (tmp_path / "both").write_text(file.read_text())
    delete_user(tmp_path / "both", "acme/bob")
    set_password(tmp_path / "both", "acme/alice", "x", cost=HashCost(1, 8, 1))
    assert "two users" in site.fails("client", "import", str(tmp_path / "both"), "-n", "acme")
    (tmp_path / "none").write_text("# nobody\n")
    assert "no users" in site.fails("client", "import", str(tmp_path / "none"))


def test_the_dump_reads_like_the_state(site: Site) -> None:
    site.text("topic", "create", "my-topic")
    text = site.text("dump")
    assert text.startswith("=== Cluster state ===\nindex: ")
    assert '  name: "default"\n  topics: <\n    name: "my-topic"\n    shards: 1\n    replication_factor: 3\n' in text
    assert 'default_exchange_type: "fanout"' in text
    assert text.count("state: ALIVE") == 3
    assert "=== Segments ===" in text
    dumped = site.json("dump")
    assert dumped["index"] == site.port.state().index
    assert dumped["namespaces"][0]["topics"][0]["name"] == "my-topic"


def test_a_rebalance_that_has_nothing_to_do(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "3")
    assert site.text("cluster", "rebalance") == "0 partitions moving, 0 leaders not in place.\n"
    assert site.text("cluster", "rebalance", "--watch").splitlines()[-1] == (
        "Copies and leaders are where they should be."
    )
    assert site.json("cluster", "rebalance", "--watch")["settled"] is True


def test_advice_is_shown_and_followed(site: Site, tmp_path: Path) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    partition = site.port.state().topic("default", "plant").partitions[0]
    other = site.port.state().nodes[next(node for node in partition.target if node != partition.preferred)].name
    file = tmp_path / "advice.json"
    entry = {"namespace": "default", "topic": "plant", "shard": 0, "to_node": other, "why": "it is hot"}
    file.write_text(json.dumps({"format": 1, "leaders": [entry, {**entry, "shard": 7}]}))
    seen = site.text("cluster", "rebalance", "--advice", str(file), "--dry-run")
    assert "would move" in seen
    assert "it is hot" in seen
    assert seen.endswith("Of 2 pieces of advice 1 would be moved, 1 refused.\n")
    assert site.port.state().partition(partition.group) == partition
    moved = site.text("cluster", "rebalance", "--advice", str(file), "--watch")
    assert "moves" in moved
    assert moved.endswith("0 partitions moving, 0 leaders not in place.\n")
    assert site.port.state().partition(partition.group).is_advised
    assert site.json("cluster", "rebalance", "--advice", str(file))["moves"] == 0
    file.write_text(json.dumps({"format": 1, "leaders": [{**entry, "shard": 7}]}))
    for options in (["--watch"], ["--dry-run"], ["--json"]):
        assert run(["cluster", "rebalance", "--advice", str(file), *options]) == 1, "all of it was refused"
        assert "refused" in site.capsys.readouterr().out
    file.write_text('{"format": 1, "leaders": []}')
    assert "Of 0 pieces" in site.text("cluster", "rebalance", "--advice", str(file)), "nothing to do is well done"
    file.write_text('{"leader": []}')
    assert "is no advice" in site.fails("cluster", "rebalance", "--advice", str(file))
    assert "can't be read" in site.fails("cluster", "rebalance", "--advice", str(tmp_path / "none"))
    assert "--dry-run goes with" in site.fails("cluster", "rebalance", "--dry-run", code=2)


def test_hidden_topics_are_shown_with_all(site: Site) -> None:
    site.port.apply(CreateHidden(SESSIONS_TOPIC))
    assert "There are no durable topics" in site.text("topic", "list")
    [found] = site.json("topic", "list", "--all")
    assert (found["name"], found["hidden"], found["shards"]) == (SESSIONS_TOPIC, True, 4)
    assert "7d" not in site.text("topic", "list", "--all")
    assert "flockmq topic list" in site.fails("topic", "show", SESSIONS_TOPIC)
    assert site.text("topic", "show", SESSIONS_TOPIC, "--all").count("healthy") == 4
    assert site.text("partition", "list") == "There are no partitions.\n"
    assert site.text("partition", "list", "--all").count("default/$sessions") == 4
    assert "no topic" in site.fails("partition", "list", "--topic", SESSIONS_TOPIC)
    assert len(site.json("partition", "list", "--topic", SESSIONS_TOPIC, "--all")) == 4
    assert "default/$sessions" in site.text("partition", "show", "1")
    site.port.leaderless = {2}
    assert site.text("partition", "list", "--unhealthy").count("default/$sessions") == 1
    assert "4 replicas" in site.text("partition", "scrub")
    assert "$sessions" not in site.text("dump")
    assert "hidden: true" in site.text("dump", "--all")
    [topic] = site.json("dump")["namespaces"][0]["topics"]
    assert (topic["name"], topic["hidden"]) == (SESSIONS_TOPIC, True)


def test_hidden_topics_are_neither_changed_nor_read(site: Site) -> None:
    site.port.apply(CreateHidden(SESSIONS_TOPIC))
    assert "can't be the name" in site.fails("topic", "create", SESSIONS_TOPIC)
    assert "the cluster's own" in site.fails("topic", "delete", SESSIONS_TOPIC, "--yes")
    assert "the cluster's own" in site.fails("topic", "alter", SESSIONS_TOPIC, "--shards", "9")
    assert "no topic" in site.fails("log", "read", SESSIONS_TOPIC)
    assert "no topic" in site.fails("cursor", "create", "spy", SESSIONS_TOPIC)
