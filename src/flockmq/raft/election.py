"""Electing a leader (Raft paper, 5.2 and 5.4.1; thesis 4.2.3 and 9.6).

```
 silence --> pre-vote: would a quorum elect me? --yes--> term + 1, vote for myself, both durable --> ask for votes
                 | no                                                                             |
                 `-- wait, no leader was disturbed                              a quorum says yes: lead
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.messages import VoteReply, VoteRequest
from flockmq.raft.replication import begin_term
from flockmq.raft.roles import become_candidate, become_follower, become_leader, become_pre_candidate, draw_campaign
from flockmq.raft.state import CANDIDATE, LEADER, PRE_CANDIDATE, SOUND

if TYPE_CHECKING:
    from flockmq.raft.messages import TimeoutNow
    from flockmq.raft.state import RaftState


def tick_election(state: RaftState) -> None:
    """Campaign when no leader was heard for long enough (paper, 5.2)."""
    if state.quiet or state.clock.elapsed < state.campaign_at:
        return
    if may_campaign(state):
        ask_around(state)
    else:
        draw_campaign(state)


def may_campaign(state: RaftState) -> bool:
    """Only voters that have all they ever acknowledged.

    Voters of a configuration that is being left as well, until its successor is known to be committed: maybe only they
    have the entry that names the new voters, and those can't be elected without it (thesis 4.2.2).
    """
    if state.health != SOUND:
        return False
    return any(configuration.is_voter(state.node) for _, configuration in state.configurations)


def ask_around(state: RaftState) -> None:
    """Pre-vote (thesis 9.6): a node that can't win must not raise terms, or it would depose a good leader."""
    become_pre_candidate(state)
    state.votes[state.node] = True
    for node in state.configuration.members():
        if node != state.node and state.configuration.is_voter(node):
            state.send(_request(state, node, state.term + 1, pre=True, transfer=False))
    _count(state)


def campaign(state: RaftState, transfer: bool) -> None:
    """Ask for votes in a new term. ``transfer``: the leader itself wants it, so the others need not be loyal to it."""
    become_candidate(state)
    for node in state.configuration.members():
        if node != state.node and state.configuration.is_voter(node):
            state.promise(_request(state, node, state.term, pre=False, transfer=transfer))
    # The own vote is one like any other: it counts when it is durable (paper, figure 2: before answering).
    state.promise(VoteReply(state.group, state.node, state.node, state.term, False, True))


def is_loyal(state: RaftState, request: VoteRequest) -> bool:
    """Whether a vote request must be ignored because a leader lives (paper, end of section 6; thesis 4.2.3).

    Leases rest on this. It holds for ``election_ms`` after a start as well: maybe a leader's round was answered just
    before. A quiet leader is silent; the host watches over its node.
    """
    if request.transfer:
        return False
    if request.sender == state.leader and request.term > state.term:
        # It asks about a later term, so it leads no more and holds no lease.
        return False
    return state.role == LEADER or state.quiet or state.clock.elapsed < state.loyal_until


def on_vote_request(state: RaftState, request: VoteRequest) -> None:
    """Answer a candidate of this term, or a pre-vote."""
    up_to_date = request.last_term > state.log.last_term or (
        request.last_term == state.log.last_term and request.last_index >= state.log.last_index
    )  # paper, 5.4.1
    if request.pre:
        granted = up_to_date and state.health == SOUND and request.term > state.term
        term = request.term if granted else state.term
        state.send(VoteReply(state.group, state.node, request.sender, term, True, granted))
        return
    # One vote per term (paper, 5.2); none once a leader of the term is known.
    is_free = state.vote in (0, request.sender) and state.leader in (0, request.sender)
    if not (up_to_date and is_free and state.health == SOUND):
        state.send(VoteReply(state.group, state.node, request.sender, state.term, False, False))
        return
    if state.vote == 0:
        state.vote = request.sender
        state.hard_is_dirty = True
    # Granting resets the own timer (paper, 5.2). The answer leaves when the vote is durable: a vote that a crash
    # could undo might be given twice (paper, figure 2).
    draw_campaign(state)
    state.promise(VoteReply(state.group, state.node, request.sender, state.term, False, True))


def on_vote_reply(state: RaftState, reply: VoteReply) -> None:
    """Count an answer, if it belongs to the campaign that is going on."""
    if reply.pre:
        if state.role != PRE_CANDIDATE or (reply.granted and reply.term != state.term + 1):
            return
    elif state.role != CANDIDATE or reply.term != state.term:
        return
    state.votes.setdefault(reply.sender, reply.granted)
    _count(state)


def on_timeout_now(state: RaftState, message: TimeoutNow) -> None:
    """The leader wants us to lead: campaign at once, without a pre-vote (thesis 3.10)."""
    if state.leader == message.sender and state.role != LEADER and may_campaign(state):
        campaign(state, transfer=True)


def _request(state: RaftState, node: int, term: int, pre: bool, transfer: bool) -> VoteRequest:
    return VoteRequest(state.group, state.node, node, term, state.log.last_index, state.log.last_term, pre, transfer)


def _count(state: RaftState) -> None:
    granted = {node for node, vote in state.votes.items() if vote}
    if state.configuration.has_quorum(granted):
        if state.role == PRE_CANDIDATE:
            campaign(state, transfer=False)
        else:
            become_leader(state)
            begin_term(state)
        return
    refused = {node for node, vote in state.votes.items() if not vote}
    hopeful = set(state.configuration.members()) - refused
    if not state.configuration.has_quorum(hopeful):
        become_follower(state, state.term, 0)
