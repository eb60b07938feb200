"""The cluster as the admin API shows it: members, routes, the way of a message."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from flockmq.admin import cluster_model as model
from flockmq.admin.cluster_port import LiveNode
from flockmq.admin.cluster_views import deliveries, share_step, step
from flockmq.admin.moments import Moments
from flockmq.admin.node_listings import NodeListings
from flockmq.admin.paging import Pager
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.gossip.member import EDGE
from flockmq.mqtt import reasons
from flockmq.peering.explain import Recipients, decode_recipients, encode_recipients, explain, explain_here
from flockmq.peering.kinds import BAN_HITS, END_SESSION, EXPLAIN, FIND, HELD, KICK, LISTING
from flockmq.peering.node import CLIENTS
from flockmq.server.durable_asking import unless_done
from flockmq.server.durable_view import DurableView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.metrics import Number
    from flockmq.gossip.member import Member
    from flockmq.server.cluster import ClusterService


WALKS_MAX: Final = 64
"""Listings that other nodes are in the middle of here."""
_STATES: Final[tuple[model.MemberState, ...]] = ("alive", "suspect", "dead", "left")
"""By the numbers of ``gossip.member``."""


class ClusterView:
    """See the module; a ``ClusterPort``."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self.durable = DurableView(service)
        node = service.node
        broker_node = node.broker.node
        broker = node.broker
        node.calls.serve(EXPLAIN, lambda body: encode_recipients(explain_here(broker_node, body)))
        node.calls.serve(KICK, lambda body: bytes((broker.kick(_text(body), now_ms()),)))
        node.calls.serve(BAN_HITS, self._hits)
        pager = Pager(lambda: secrets.token_urlsafe(9), walks_max=WALKS_MAX)
        moments = Moments(now_ms, wall_ms)
        told = NodeListings(lambda: broker, moments, pager, node.swim.me.name, self.durable.session_lag)
        node.calls.serve(LISTING, told.answer_page)
        node.calls.serve(FIND, told.answer_find)
        node.calls.serve(HELD, told.answer_held)
        node.calls.serve(END_SESSION, lambda body: bytes((broker.end_session(_text(body), now_ms()),)))

    def id_text(self) -> str:
        """The id of the cluster."""
        return self._service.id_text()

    def status(self) -> model.Cluster:
        """The members and how they do."""
        node = self._service.node
        formation = node.formation
        waiting = not formation.cluster_id
        members = sorted(self._members(), key=lambda one: (one.name, one.node_id))
        return model.Cluster(
            id=None if waiting else f"{formation.cluster_id:016x}",
            node=node.swim.me.name,
            state="waiting" if waiting else "formed",
            reason=formation.decision.reason if waiting else self._service.forming.elsewhere,
            members=[self._member(one) for one in members],
        )

    def figures(self) -> dict[str, Number]:
        """Numbers for the metrics, by name."""
        service = self._service
        node = service.node
        states = [_STATES[member.state] for member in self._members()]
        return {
            **{f"members_{state}": states.count(state) for state in _STATES},
            **node.forwarding.totals(),
            **service.traffic(),
            "subacks_waiting": node.routes.waiting(),
            "health": node.swim.health,
            "sessions_in": service.durable.node.session_room.reloading.taken,
            "sessions_out": service.durable.node.session_room.yielding.yielded,
        }

    def _members(self) -> list[Member]:
        """All members of gossip, except dead ones that cluster state has forgotten: gossip still looks for these."""
        service = self._service
        known = service.durable.node.meta.state.nodes
        return [
            member
            for member in service.node.swim.members.values()
            if member.is_live or not known or member.node_id in known
        ]

    def _member(self, member: Member) -> model.Member:
        service = self._service
        node = service.node
        is_self = member.node_id == node.node_id
        measured = service.runner.measured.get(member.node_id)
        clients = node.maps.get(member.node_id, CLIENTS)
        links = service.links
        return model.Member(
            name=member.name,
            id=f"{member.node_id:016x}",
            host=member.host,
            port=member.port,
            state=_STATES[member.state],
            role="edge" if member.role == EDGE else "core",
            version=member.version,
            is_self=is_self,
            linked=is_self or links.info(member.node_id) is not None,
            rtt_ms=round(measured.rtt_ms, 3) if measured else None,
            clock_offset_ms=round(measured.clock_offset_ms, 1) if measured else None,
            clients=node.broker.node.online if is_self else int.from_bytes(clients, "little") if clients else None,
            routes=self._routes_of(member.node_id),
            unsent_bytes=links.unsent_bytes(member.node_id),
        )

    def _routes_of(self, node_id: int) -> int:
        node = self._service.node
        if node_id == node.node_id:
            return sum(1 for key, _ in node.maps.items(node_id) if key[:2] in (b"r/", b"s/"))
        stream = node.forwarding.streams.get(node_id)
        return len(stream.peer.routes) + len(stream.peer.shares) if stream is not None else 0

    async def explain(self, topic: bytes, publisher: str) -> model.Explanation:
        """The clients that would get a message to this topic; other nodes are asked about their clients."""
        node = self._service.node
        me = node.swim.me.name
        found = explain(node.broker.node, node.routes, me, topic)
        answers = await asyncio.gather(*(self._ask(hop.node_id, topic) for hop in found.hops))
        steps = [step(publisher, me, "Publish", found.topic)]
        misses = []
        for hop in found.hops:
            steps += [step(me, hop.name, "Route", one) for one in hop.filters]
            steps += [share_step(me, hop.name, one) for one in hop.groups]
            if hop.problem:
                misses.append(model.Miss(node=hop.name, reason=hop.problem))
        steps += deliveries(me, found.here)
        for hop, answer in zip(found.hops, answers, strict=True):
            if answer is None:
                misses.append(model.Miss(node=hop.name, reason="It did not answer which of its clients would get it."))
            else:
                steps += deliveries(hop.name, answer)
        notes = [found.captured] if found.captured else []
        return model.Explanation(
            topic=found.topic,
            node=me,
            steps=steps,
            misses=misses,
            notes=notes + found.why_not,
            captured=bool(found.captured),
        )

    def live_nodes(self) -> list[LiveNode]:
        """All nodes that gossip holds alive, this one among them, by id."""
        swim = self._service.node.swim
        found = [LiveNode(one.node_id, one.name, one.node_id == swim.me.node_id) for one in swim.alive()]
        return sorted(found, key=lambda one: one.node_id)

    def name_of(self, node_id: int) -> str:
        """The name of a node, or its id when the name is not known."""
        member = self._service.node.swim.members.get(node_id)
        return member.name if member is not None else f"{node_id:016x}"

    async def list_at(self, node_id: int, question: bytes) -> bytes | None:
        """What another node answers to a question for a page."""
        return await self._call(node_id, LISTING, question)

    async def find_at(self, nodes: Sequence[int], question: bytes) -> list[bytes | None]:
        """What other nodes answer to a question for a client."""
        return await asyncio.gather(*(self._call(node, FIND, question) for node in nodes))

    async def held_at(self, nodes: Sequence[int], question: bytes) -> list[bytes | None]:
        """What other nodes answer to a question for sessions."""
        return await asyncio.gather(*(self._call(node, HELD, question) for node in nodes))

    async def kick(self, client_id: str) -> bool:
        """Disconnect a client of another node."""
        return await self._ask_all(KICK, client_id)

    async def end_session(self, client_id: str) -> bool:
        """Forget a session of another node."""
        return await self._ask_all(END_SESSION, client_id)

    async def ban_hits(self, kind: str, value: str) -> int:
        """How many connections a ban has ended, on all nodes that answer."""
        body = f"{kind}\0{value}".encode()
        peers = self._service.links.connected()
        answers = await asyncio.gather(*(self._call(peer, BAN_HITS, body) for peer in peers))
        told = [answer for answer in [self._hits(body), *answers] if answer is not None and len(answer) == 4]
        return sum(int.from_bytes(answer, "little") for answer in told)

    def _hits(self, body: bytes) -> bytes:
        kind, _, value = _text(body).partition("\0")
        ban = self._service.broker.bans.bans.get((kind, value))
        return (ban.kicked if ban is not None else 0).to_bytes(4, "little")

    async def _ask_all(self, kind: int, client_id: str) -> bool:
        """Ask all nodes to act on a client, because the client may move meanwhile; returns whether one of them did."""
        peers = self._service.links.connected()
        answers = await asyncio.gather(*(self._call(peer, kind, client_id.encode()) for peer in peers))
        return b"\x01" in answers

    async def _call(self, peer: int, kind: int, body: bytes) -> bytes | None:
        answered: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._service.node.calls.ask(peer, kind, body).then(unless_done(answered))
        self._service.runner.runner.flush_soon()
        return await answered

    async def _ask(self, peer: int, topic: bytes) -> Recipients | None:
        body = await self._call(peer, EXPLAIN, topic)
        if body is None:
            return None
        try:
            return decode_recipients(body)
        except FlockError:
            return None

    async def join(self, address: str, discard_data: bool) -> model.JoinResult:
        """Become a member of another cluster."""
        return await self._service.moves.join(address, discard_data)

    async def leave(self, discard_data: bool) -> model.JoinResult:
        """Take leave of the others."""
        return await self._service.moves.leave(discard_data)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A client id or user name is not UTF-8") from None
