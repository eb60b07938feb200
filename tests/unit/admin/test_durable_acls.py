from __future__ import annotations

import pytest

from flockmq.admin import durable_acls, durable_tenants
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.desk import Desk
from flockmq.cluster.model import AclRule
from flockmq.errors import ApiError
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import MemoryDurable

FINE = tenants.AccessRule(allow=True, who=["user:bob", "ip:192.0.2.0/24"], action="publish", topics=["devices/%c/#"])


def open_desk() -> tuple[Desk, MemoryDurable]:
    port = MemoryDurable()
    return make_desk(BrokerHarness(), durable=port), port


async def put(desk: Desk, *rules: tenants.AccessRule, namespace: str = "default") -> tenants.AccessRules:
    body = tenants.AccessRequest(default="deny", rules=list(rules))
    return await durable_acls.put_acl(desk, call(body=body, namespace=namespace))


def rule(who: str = "all", topic: str = "a") -> tenants.AccessRule:
    return tenants.AccessRule(allow=False, who=[who], action="all", topics=[topic])


async def test_rules_are_put_shown_and_taken_away() -> None:
    desk, port = open_desk()
    made = await put(desk, FINE, rule())
    assert (made.namespace, made.default, made.rules) == ("default", "deny", [FINE, rule()])
    assert made.changed_index == port.state().index
    assert port.state().acls["default"].rules == (
        AclRule(True, ("user:bob", "ip:192.0.2.0/24"), "publish", ("devices/%c/#",)),
        AclRule(False, ("all",), "all", ("a",)),
    )
    assert durable_acls.get_acl(desk, call(namespace="default")) == made
    assert (await put(desk, rule())).rules == [rule()], "all rules at once"
    await durable_acls.delete_acl(desk, call(namespace="default"))
    assert port.state().acls == {}
    with pytest.raises(ApiError, match="has no rules") as refused:
        durable_acls.get_acl(desk, call(namespace="default"))
    assert refused.value.kind.status == 404
    with pytest.raises(ApiError, match="nothing to delete"):
        await durable_acls.delete_acl(desk, call(namespace="default"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rule("bob"), "Rule 2: who is 'bob'; write"),
        (rule("ip:192.0.2.1/24"), "Rule 2: who is 'ip:192.0.2.1/24', which is no address or network"),
        (rule(topic="a/#/b"), "Rule 2: topic 'a/#/b'"),
        (rule(topic="%x/a"), "Rule 2: topic '%x/a' holds '%x'"),
        (rule(topic="$share/g/a"), "Rule 2: topic .* is a shared subscription"),
        (rule("user:a\nb"), "Rule 2: The `who` of a rule must be"),
        (rule(topic="a/" * 64 + "b"), "Rule 2: The filter"),
    ],
)
async def test_what_is_wrong_with_which_rule(wrong: tenants.AccessRule, message: str) -> None:
    desk, port = open_desk()
    with pytest.raises(ApiError, match=message):
        await put(desk, FINE, wrong)
    assert port.state().acls == {}


async def test_too_many_rules() -> None:
    desk, _ = open_desk()
    long = tenants.AccessRule(allow=True, who=["all"], action="all", topics=["t" * 1_000] * 200)
    with pytest.raises(ApiError, match="rule 2 goes beyond"):
        await put(desk, long, long)


async def test_users_of_a_namespace_go_by_their_names_in_it() -> None:
    desk, port = open_desk()
    with pytest.raises(ApiError, match="namespace"):
        await put(desk, FINE, namespace="acme")
    with pytest.raises(ApiError, match="namespace"):
        durable_acls.get_acl(desk, call(namespace="acme"))
    await durable_tenants.create_namespace(desk, call(body=tenants.NamespaceRequest(name="acme")))
    with pytest.raises(ApiError, match=r"Rule 1: who is 'user:acme/bob'.*write 'user:bob'"):
        await put(desk, rule("user:acme/bob"), namespace="acme")
    await put(desk, rule("user:bob"), namespace="acme")
    assert list(port.state().acls) == ["acme"]
    await put(desk, rule("user:building/3"))


async def test_users_of_another_namespace_have_their_rules_there() -> None:
    desk, port = open_desk()
    for name in ("acme", "beta"):
        await durable_tenants.create_namespace(desk, call(body=tenants.NamespaceRequest(name=name)))
    for namespace in ("default", "beta"):
        said = (
            r"Rule 2: who is 'user:acme/bob'.*'user:bob' into the rules of 'acme', with `flockmq acl set -n acme FILE`"
        )
        with pytest.raises(ApiError, match=said):
            await put(desk, FINE, rule("user:acme/bob"), namespace=namespace)
    with pytest.raises(ApiError, match=r"rules of 'default', with `flockmq acl set FILE`"):
        await put(desk, rule("user:default/bob"), namespace="beta")
    assert port.state().acls == {}
    await put(desk, rule("user:building/3"), namespace="beta")
    await put(desk, rule("user:acme"), rule("client:acme/bob"))


async def test_the_advice_to_put_rules_names_the_namespace() -> None:
    desk, _ = open_desk()
    await durable_tenants.create_namespace(desk, call(body=tenants.NamespaceRequest(name="acme")))
    with pytest.raises(ApiError, match="`flockmq acl set -n acme FILE`"):
        durable_acls.get_acl(desk, call(namespace="acme"))
    with pytest.raises(ApiError, match="`flockmq acl set FILE`"):
        durable_acls.get_acl(desk, call(namespace="default"))
