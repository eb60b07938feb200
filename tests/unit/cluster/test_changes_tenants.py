from __future__ import annotations

import pytest

from flockmq.cluster.commands import (
    CONFLICT,
    EXISTS,
    INVALID,
    LIMIT,
    NOT_FOUND,
    AlterNamespace,
    CreateNamespace,
    CreateTopic,
    DeleteAcl,
    DeleteClient,
    DeleteNamespace,
    DeleteTopic,
    PutAcl,
    PutClient,
)
from flockmq.cluster.model import AclRule, ClientRecord, Limits, Namespace
from state_cases import Machine

HASH = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"


def test_namespaces_come_change_and_go() -> None:
    machine = Machine()
    created = machine.done(CreateNamespace("acme", Limits(topics_max=2, clients_max=3)))
    assert created == Namespace("acme", Limits(topics_max=2, clients_max=3), machine.wall_ms)
    altered = machine.done(AlterNamespace("acme", clients_max=0, sessions_max=9))
    assert isinstance(altered, Namespace)
    assert altered.limits == Limits(topics_max=2, sessions_max=9)
    assert altered.created_ms == created.created_ms
    machine.refused(CreateNamespace("acme"), EXISTS)
    machine.done(DeleteNamespace("acme"))
    assert list(machine.state.namespaces) == ["default"]
    machine.refused(AlterNamespace("acme"), NOT_FOUND)
    machine.refused(DeleteNamespace("acme"), NOT_FOUND)


def test_namespaces_that_can_not_be() -> None:
    machine = Machine()
    machine.refused(CreateNamespace("a/b"), INVALID)
    machine.refused(CreateNamespace("acme", Limits(topics_max=-1)), INVALID)
    machine.refused(AlterNamespace("default", stored_bytes_max=-1), INVALID)


def test_the_default_namespace_stays_and_can_be_limited() -> None:
    machine = Machine(1)
    machine.refused(DeleteNamespace("default"), CONFLICT)
    machine.done(AlterNamespace("default", topics_max=1))
    machine.topic("one")
    machine.refused(CreateTopic("two"), LIMIT)


def test_a_namespace_goes_only_when_it_is_empty() -> None:
    machine = Machine(1)
    machine.done(CreateNamespace("acme"))
    machine.done(CreateTopic("orders", "acme"))
    machine.done(PutClient("acme", "bob"))
    machine.done(PutAcl("acme", True))
    assert "orders" in machine.refused(DeleteNamespace("acme"), CONFLICT)
    machine.done(DeleteTopic("orders", "acme"))
    assert "bob" in machine.refused(DeleteNamespace("acme"), CONFLICT)
    machine.done(DeleteClient("acme", "bob"))
    machine.done(DeleteNamespace("acme"))
    assert not machine.state.acls
    assert machine.state.versions.clients == machine.state.index


def test_a_client_keeps_what_is_not_said() -> None:
    machine = Machine()
    created = machine.done(PutClient("default", "bob", HASH, publish=("a/#",)))
    assert created == ClientRecord(
        "default", "bob", HASH, ("a/#",), ("#",), (), (), False, machine.wall_ms, machine.state.index
    )
    altered = machine.done(PutClient("default", "bob", subscribe_deny=("b",), superuser=True))
    assert isinstance(altered, ClientRecord)
    assert (altered.secret, altered.publish, altered.subscribe_deny) == (HASH, ("a/#",), ("b",))
    assert altered.superuser
    assert altered.created_ms == created.created_ms
    assert altered.changed_index == machine.state.index
    silenced = machine.done(PutClient("default", "bob", publish=(), secret=""))
    assert isinstance(silenced, ClientRecord)
    assert (silenced.publish, silenced.secret) == ((), "")


def test_clients_that_can_not_be() -> None:
    machine = Machine()
    machine.done(PutClient("default", "bob"))
    machine.refused(PutClient("default", "bob", only_new=True), EXISTS)
    machine.refused(PutClient("default", "a/b"), INVALID)
    machine.refused(PutClient("nowhere", "bob"), NOT_FOUND)
    machine.refused(PutClient("default", "bob", "plain password"), INVALID)
    machine.refused(PutClient("default", "bob", publish=("a/#/b",)), INVALID)
    machine.refused(PutClient("default", "bob", subscribe_deny=("a", "a")), INVALID)
    machine.refused(DeleteClient("default", "alice"), NOT_FOUND)


def test_a_namespace_limits_its_clients() -> None:
    machine = Machine()
    machine.done(CreateNamespace("acme", Limits(clients_max=1)))
    machine.done(PutClient("acme", "bob"))
    machine.done(PutClient("default", "alice"))
    machine.refused(PutClient("acme", "carol"), LIMIT)
    machine.done(PutClient("acme", "bob", superuser=True))


def test_rules_are_replaced_as_a_whole() -> None:
    machine = Machine()
    rule = AclRule(True, ("user:bob", "ip:192.0.2.0/24"), "publish", ("devices/%c/#",))
    machine.done(PutAcl("default", False, (rule,)))
    machine.done(PutAcl("default", True, (rule, rule)))
    assert machine.state.acls["default"].rules == (rule, rule)
    assert machine.state.acls["default"].default_allow
    machine.done(DeleteAcl("default"))
    machine.refused(DeleteAcl("default"), NOT_FOUND)


@pytest.mark.parametrize(
    "rule",
    [
        AclRule(True, ("all",), "read", ("a",)),
        AclRule(True, (), "all", ("a",)),
        AclRule(True, ("all",), "all", ()),
        AclRule(True, ("all",), "all", ("a/#/b",)),
        AclRule(True, ("x" * 300,), "all", ("a",)),
        AclRule(True, ("all",) * 1_001, "all", ("a",)),
    ],
)
def test_rules_that_can_not_be(rule: AclRule) -> None:
    fine = AclRule(True, ("all",), "all", ("a",))
    assert Machine().refused(PutAcl("default", True, (fine, rule)), INVALID).startswith("Rule 2: ")


def test_there_is_an_end_to_rules() -> None:
    rule = AclRule(True, ("all",), "all", ("a",))
    Machine().refused(PutAcl("default", True, (rule,) * 1_001), LIMIT)
    long = AclRule(True, ("all",), "all", ("t" * 1_000,) * 250)
    Machine().done(PutAcl("default", True, (rule, long)))
    assert "rule 3 goes" in Machine().refused(PutAcl("default", True, (rule, long, long)), LIMIT)
    many = AclRule(True, ("all",), "all", ("t",) * 1_000)
    assert "rule 10 goes" in Machine().refused(PutAcl("default", True, (many,) * 10), LIMIT)
    Machine().refused(PutAcl("nowhere", True), NOT_FOUND)


def test_there_is_an_end_to_namespaces_and_clients() -> None:
    machine = Machine()
    machine.done(PutClient("default", "bob"))
    bob = machine.state.clients["default/bob"]
    machine.state.clients.update({f"default/c{number}": bob for number in range(199_998)})
    machine.done(PutClient("default", "carol"))
    assert "200000" in machine.refused(PutClient("default", "dave"), LIMIT)
    machine.done(PutClient("default", "bob", superuser=True))
    machine.state.namespaces.update({f"n{number}": Namespace(f"n{number}") for number in range(9_998)})
    machine.done(CreateNamespace("last"))
    assert "10000" in machine.refused(CreateNamespace("more"), LIMIT)
