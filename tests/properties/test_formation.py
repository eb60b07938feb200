"""Nodes start, see each other or not, crash and return in any order: never two clusters, and one in the end."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from flockmq.peering.contact import Contact
from flockmq.peering.formation import BOOTSTRAP, JOIN, WAIT, Ballot, Rules
from flockmq.peering.forming import Formation

Step = tuple[str, int, int]
KINDS = ("start", "crash", "reach", "cut", "begin", "list", "save", "flush", "deliver", "act", "settle")
NODES_MAX = 5
ROUNDS_MAX = 60


class Outbox:
    def __init__(self, world: World, sender: int) -> None:
        self.world = world
        self.sender = sender

    def send(self, peer: int, channel: int, body: bytes) -> None:
        receiver = self.world.ids.index(peer)
        self.world.wires[self.sender, receiver].append(body)


class World:
    """Nodes with disks, links that keep order, and one place where they register; time is a counter of events."""

    def __init__(
        self,
        ids: list[int],
        expect: int,
        hidden: frozenset[tuple[int, int]],
        links: frozenset[int],
        edges: frozenset[int] = frozenset(),
        points: dict[int, list[int]] | None = None,
    ) -> None:
        self.edges = edges
        self.points = points  # whom each node was told to join, where no plugin lists nodes
        self.ids = ids
        self.count = len(ids)
        self.expect = expect
        self.hidden = hidden  # (who lists, whom it does not get to see)
        self.now = 0
        self.reachable = {(a, b): a * self.count + b in links for a in range(self.count) for b in range(a)}
        self.linked: set[tuple[int, int]] = set()
        self.wires: dict[tuple[int, int], deque[bytes]] = {
            (a, b): deque() for a in range(self.count) for b in range(self.count)
        }
        self.running: dict[int, Formation] = {}
        self.registered: set[int] = set()
        self.begun: dict[int, int] = {}
        self.ballots = [Ballot()] * self.count
        self.clusters = [0] * self.count
        self.minted: list[int] = []
        self.minting: set[int] = set()

    def step(self, kind: str, a: int, b: int) -> None:
        self.now += 1
        a, b = a % self.count, b % self.count
        if kind == "start":
            self.start(a)
        elif kind in ("reach", "cut") and a != b:
            self.reachable[max(a, b), min(a, b)] = kind == "reach"
            if kind == "cut":
                self.unlink(a, b)
        elif a in self.running:
            self.step_of_running(kind, a, b)

    def step_of_running(self, kind: str, a: int, b: int) -> None:
        node = self.running[a]
        if kind == "crash":
            for other in range(self.count):
                self.unlink(a, other)
            del self.running[a]
            self.begun.pop(a, None)
            self.minting.discard(a)
        elif kind == "begin":
            self.begun[a] = self.now
        elif kind == "list" and a in self.begun:
            self.finish_listing(a)
        elif kind == "save":
            ballot = node.take_ballot()
            if ballot is not None:
                self.ballots[a] = ballot
                node.kept(ballot, self.now)
        elif kind == "flush":
            node.flush(self.now)
        elif kind == "deliver" and self.wires[b, a]:
            node.receive(self.ids[b], self.wires[b, a].popleft(), self.now)
        elif kind == "act":
            self.act(a)
        elif kind == "settle":
            for each in ("begin", "list", "save", "flush", "act", "flush"):
                self.step(each, a, b)

    def start(self, a: int) -> None:
        if a in self.running:
            return
        rules = Rules(lists_peers=True, expect=self.expect, is_edge=a in self.edges)
        if self.points is not None:
            rules = Rules(lists_peers=False, contact_points=len(self.points[a]), is_edge=a in self.edges)
        outbox = Outbox(self, a)
        self.running[a] = Formation(self.ids[a], self.clusters[a], False, self.ballots[a], rules, outbox, self.now)
        self.registered.add(a)

    def finish_listing(self, a: int) -> None:
        node = self.running[a]
        seen = [other for other in sorted(self.registered) if other == a or (a, other) not in self.hidden]
        if self.points is not None:
            seen = self.points[a]
        contacts = {other: Contact(f"n{other}", 16_000) for other in seen}
        node.listed(list(contacts.values()), self.begun.pop(a))
        for other, contact in contacts.items():
            if other == a or self.link(a, other):
                node.answered(contact, self.ids[other])

    def link(self, a: int, b: int) -> bool:
        pair = (max(a, b), min(a, b))
        if b not in self.running or not self.reachable[pair]:
            return False
        if self.clusters[a] and self.clusters[b] and self.clusters[a] != self.clusters[b]:
            return False
        if pair not in self.linked:
            self.linked.add(pair)
            self.running[a].peer_up(self.ids[b], self.now)
            self.running[b].peer_up(self.ids[a], self.now)
        return True

    def unlink(self, a: int, b: int) -> None:
        pair = (max(a, b), min(a, b))
        if pair in self.linked:
            self.linked.discard(pair)
            self.wires[a, b].clear()
            self.wires[b, a].clear()
            for one, other in (pair, pair[::-1]):
                if one in self.running:
                    self.running[one].peer_down(self.ids[other], self.now)

    def act(self, a: int) -> None:
        """Minting takes a while (a claim, a write), and what was begun is not called off."""
        node = self.running[a]
        if a in self.minting:
            self.minting.discard(a)
            assert not self.clusters[a], "a node with a cluster id bootstrapped again"
            assert a not in self.edges, "an edge node founded a cluster"
            self.minted.append(1_000 + len(self.minted))
            self.clusters[a] = self.minted[-1]
            node.belong(self.clusters[a])
        elif node.decision.kind == BOOTSTRAP:
            self.minting.add(a)
        elif node.decision.kind == JOIN:
            assert self.clusters[a] in (0, node.decision.cluster_id), "a member changed its cluster"
            self.clusters[a] = node.decision.cluster_id
            node.belong(self.clusters[a])

    def run(self, script: str) -> None:
        """``A+`` starts node A, ``A!`` crashes it, ``A?`` is a round of its own, ``A<B`` delivers what B said to A,
        ``A=B`` and ``A|B`` connect and cut, ``A:flush`` is one step by name."""
        for word in script.split():
            a, sign, rest = "ABCDE".index(word[0]), word[1], word[2:]
            if sign == "<":
                while self.wires["ABCDE".index(rest), a]:
                    self.step("deliver", a, "ABCDE".index(rest))
            elif sign == ":":
                self.step(rest, a, 0)
            else:
                kind = {"+": "start", "!": "crash", "?": "settle", "=": "reach", "|": "cut"}[sign]
                self.step(kind, a, "ABCDE".index(rest) if rest else 0)

    def heal(self) -> None:
        """Everybody runs, sees everybody, and gets all that was said."""
        self.hidden = frozenset()
        for pair in self.reachable:
            self.reachable[pair] = True
        for _ in range(ROUNDS_MAX):
            for a in range(self.count):
                self.step("start", a, 0)
                self.step("settle", a, 0)
                for b in range(self.count):
                    while self.wires[b, a]:
                        self.step("deliver", a, b)
                    self.step("save", a, 0)
                self.step("flush", a, 0)


@st.composite
def worlds(draw: st.DrawFn, *, complete: bool) -> World:
    count = draw(st.integers(2, NODES_MAX))
    ids = draw(st.permutations(range(1, count + 1)))
    least = 1 if complete else count // 2 + 1
    expect = draw(st.integers(least, count))
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    hidden = frozenset() if complete else draw(st.frozensets(st.sampled_from(pairs)))
    links = draw(st.frozensets(st.sampled_from([a * count + b for a, b in pairs if b < a])))
    edges = draw(st.frozensets(st.integers(0, count - 1), max_size=count - 1))
    return World(ids, expect, hidden, links, edges)


@st.composite
def told_to_join_edges(draw: st.DrawFn) -> World:
    """An edge node that was told of nothing, edge nodes that join those before them, core nodes that join edges."""
    count = draw(st.integers(2, NODES_MAX))
    ids = draw(st.permutations(range(1, count + 1)))
    edges = draw(st.integers(1, count - 1))
    points: dict[int, list[int]] = {0: []}
    for a in range(1, count):
        known = st.integers(0, min(a, edges) - 1)
        points[a] = draw(st.lists(known, min_size=1, max_size=2, unique=True)) if a != edges else [0]
    pairs = [(a, b) for a in range(count) for b in range(a)]
    links = draw(st.frozensets(st.sampled_from([a * count + b for a, b in pairs])))
    return World(ids, 0, frozenset(), links, frozenset(range(edges)), points)


steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, NODES_MAX - 1), st.integers(0, NODES_MAX - 1)), max_size=150
)


def play(world: World, script: list[Step]) -> None:
    for kind, a, b in script:
        world.step(kind, a, b)
        assert len(world.minted) <= 1, f"two clusters after {kind} {a} {b}"


@given(worlds(complete=False), steps)
def test_more_than_half_is_safe_whatever_is_visible(world: World, script: list[Step]) -> None:
    play(world, script)
    world.heal()
    assert len(world.minted) == 1
    assert world.clusters == world.minted * world.count


@given(worlds(complete=True), steps)
def test_any_expectation_is_safe_where_the_listing_is_complete(world: World, script: list[Step]) -> None:
    play(world, script)
    world.heal()
    assert len(world.minted) == 1
    assert world.clusters == world.minted * world.count


@given(told_to_join_edges(), steps)
def test_core_nodes_that_join_edge_nodes_found_one_cluster(world: World, script: list[Step]) -> None:
    play(world, script)
    world.heal()
    assert len(world.minted) == 1
    assert world.clusters == world.minted * world.count


@given(st.integers(0, 2**32))
@example(0)
def test_many_long_runs(seed: int) -> None:
    """The same with fully random scripts, longer than Hypothesis likes to draw and biased towards progress."""
    import random

    rng = random.Random(seed)
    count = rng.randint(2, NODES_MAX)
    complete = rng.random() < 0.5
    expect = rng.randint(1 if complete else count // 2 + 1, count)
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    hidden = frozenset() if complete else frozenset(pair for pair in pairs if rng.random() < 0.3)
    links = frozenset(a * count + b for a, b in pairs if rng.random() < 0.7)
    world = World(rng.sample(range(1, 100), count), expect, hidden, links)
    kinds = rng.choices(KINDS, [3, 1, 3, 3, 6, 6, 8, 8, 20, 4, 6], k=400)
    play(world, [(kind, rng.randrange(count), rng.randrange(count)) for kind in kinds])
    world.heal()
    assert len(world.minted) == 1
    assert world.clusters == world.minted * world.count


def test_a_node_in_sight_that_gave_its_word_elsewhere_holds_minting_up() -> None:
    world = World([1, 9, 2, 3], 2, frozenset(), frozenset())
    world.run("A+ B+ A=B B? A? B<A A<B B? A? B<A B? A<B A? A? A!")
    assert (len(world.minted), world.clusters[1]) == (1, 0)  # by A with B's word, before B heard of it
    world.run("C+ D+ B=C B=D C=D " + "C? D? B? C<D C<B D<C D<B B<C B<D " * 4)
    assert len(world.minted) == 1
    assert "given their word" in world.running[2].decision.reason


def test_nodes_are_listed_again_after_the_promises_are_in() -> None:
    world = World([1, 3, 2, 4], 2, frozenset(), frozenset())
    world.run("A+ C+ C? B+ A=B B? A? B<A A<B B? A? B<A B? A<B A? A? A!")
    assert (len(world.minted), world.clusters[1]) == (1, 0)
    world.run("D+ B=D C=D D? C:flush D<C B:flush D<B D? C<D C:save C:flush D<C D? C<D C:act C:act")
    assert len(world.minted) == 1


def test_a_promise_is_on_disk_before_it_is_spoken() -> None:
    world = World([1, 2, 3], 2, frozenset(), frozenset())
    world.run("A+ B+ A=B A? B:begin B:list B<A A:flush B<A B:flush A<B A? A<B A? A? B!")
    minted = len(world.minted)
    world.run("A|B B+ C+ B=C " + "B? C? B<C C<B " * 4)
    assert len(world.minted) == 1 > minted  # A had nothing to count: B was gone before it could keep its word


def test_who_began_to_mint_does_not_stand_down() -> None:
    world = World([5, 6, 1], 2, frozenset(), frozenset())
    world.run("A+ B+ A=B B? A? B<A A<B B? A? B<A B? A<B A?")
    assert (world.minting, world.minted) == ({0}, [])
    world.run("C+ A=C B=C C? " + "A:flush A:save B? C? A<C A<B B<A B<C C<A C<B " * 4 + "A:act C? C<A C?")
    assert len(world.minted) == 1


def test_a_member_serves_alone_and_never_bootstraps() -> None:
    world = World([1, 2], 1, frozenset(), frozenset())
    world.clusters[0] = 77
    world.start(0)
    world.step("settle", 0, 0)
    decision = world.running[0].decision
    assert (decision.kind, world.minted) == (WAIT, [])
    assert "serves alone" in decision.reason
