"""The part of the table of operations that is about consumer groups."""

from __future__ import annotations

from typing import Final

from flockmq.admin import durable_dead_letters, durable_group_members, durable_groups
from flockmq.admin import durable_groups_model as model
from flockmq.admin.durable_model import InNamespace
from flockmq.admin.model import Page
from flockmq.admin.operations import PREFIX, Operation
from flockmq.errors import CHANGE_ERRORS, CONFLICT, CURSOR_EXPIRED, NOT_FOUND, TRY_AGAIN, UNAVAILABLE

_GROUP: Final = f"{PREFIX}/groups/{{group}}"
_LOOK: Final = (NOT_FOUND, *TRY_AGAIN, UNAVAILABLE)
_CHANGE: Final = (*CHANGE_ERRORS, *TRY_AGAIN)
_SETTLE: Final = (*_LOOK, CONFLICT)

GROUP_OPERATIONS: Final = (
    Operation(
        at=f"GET {PREFIX}/groups",
        tag="groups",
        summary="Consumer groups, of one namespace or of all",
        handler=durable_groups.list_groups,
        query=model.GroupPage,
        answer=Page[model.GroupInfo],
        answer_text="A page of groups",
        errors=(CURSOR_EXPIRED, *TRY_AGAIN, UNAVAILABLE),
    ),
    Operation(
        at=f"POST {PREFIX}/groups",
        tag="groups",
        summary="Make a consumer group, and `NAME.dead` for its dead letters. Records that are published after the "
        "answer are the group's, also when it starts at `latest`",
        handler=durable_groups.create_group,
        body=model.GroupRequest,
        answer=model.GroupInfo,
        answer_text="The group",
        status=201,
        errors=_CHANGE,
    ),
    Operation(
        at=f"GET {_GROUP}",
        tag="groups",
        summary="One group: what it reads, where it stands, its lag in messages, bytes and seconds, its members",
        handler=durable_groups.get_group,
        query=InNamespace,
        answer=model.GroupDetails,
        answer_text="The group",
        errors=_LOOK,
    ),
    Operation(
        at=f"PATCH {_GROUP}",
        tag="groups",
        summary="Change a group; it stays where it stands",
        handler=durable_groups.alter_group,
        query=InNamespace,
        body=model.GroupChange,
        answer=model.GroupInfo,
        answer_text="The group as it is now",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"DELETE {_GROUP}",
        tag="groups",
        summary="Forget a group; the topic with its dead letters stays",
        handler=durable_groups.delete_group,
        query=InNamespace,
        answer_text="The group is gone",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"POST {_GROUP}/pause",
        tag="groups",
        summary="Hand out no more records. Members may settle what they hold",
        handler=durable_groups.pause_group,
        query=InNamespace,
        answer=model.GroupInfo,
        answer_text="The group, paused",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"POST {_GROUP}/resume",
        tag="groups",
        summary="Hand out records again",
        handler=durable_groups.resume_group,
        query=InNamespace,
        answer=model.GroupInfo,
        answer_text="The group, no longer paused",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"POST {_GROUP}/reset",
        tag="groups",
        summary="Begin a new generation elsewhere. Acks of records that were handed out before change nothing",
        handler=durable_groups.reset_group,
        query=InNamespace,
        body=model.GroupReset,
        answer=model.GroupInfo,
        answer_text="The group in its new generation",
        errors=_CHANGE,
    ),
    Operation(
        at=f"GET {_GROUP}/peek",
        tag="groups",
        summary="The oldest records that are not settled; nothing is handed out",
        handler=durable_group_members.peek_records,
        query=model.PeekQuery,
        answer=model.GroupMessages,
        answer_text="Records without tokens",
        errors=_LOOK,
    ),
    Operation(
        at=f"POST {_GROUP}/fetch",
        tag="groups",
        summary="Acknowledge what is done, then take records: at once, or when there are some within `wait_ms`. A "
        "record that is not settled in time is delivered again",
        handler=durable_group_members.fetch_records,
        query=InNamespace,
        body=model.FetchRequest,
        answer=model.Fetch,
        answer_text="Records with their tokens; none when the wait is over",
        audited=False,
        errors=_LOOK,
    ),
    Operation(
        at=f"POST {_GROUP}/ack",
        tag="groups",
        summary="Records are done; answered after commit. `conflict` when no token changed anything",
        handler=durable_group_members.ack_records,
        query=InNamespace,
        body=model.AckRequest,
        answer=model.Settled,
        answer_text="What the tokens changed",
        audited=False,
        errors=_SETTLE,
    ),
    Operation(
        at=f"POST {_GROUP}/nack",
        tag="groups",
        summary="Deliver records again after a delay, or make them dead letters at once. `conflict` when no token "
        "changed anything",
        handler=durable_group_members.nack_records,
        query=InNamespace,
        body=model.NackRequest,
        answer=model.Settled,
        answer_text="What the tokens changed",
        audited=False,
        errors=_SETTLE,
    ),
    Operation(
        at=f"POST {_GROUP}/extend",
        tag="groups",
        summary="Hold records longer. `conflict` when no token changed anything",
        handler=durable_group_members.extend_records,
        query=InNamespace,
        body=model.ExtendRequest,
        answer=model.Settled,
        answer_text="What the tokens changed",
        audited=False,
        errors=_SETTLE,
    ),
    Operation(
        at=f"GET {_GROUP}/dead",
        tag="groups",
        summary="Dead letters that were neither redriven nor dropped, oldest first",
        handler=durable_dead_letters.list_dead,
        query=model.PeekQuery,
        answer=model.DeadLetters,
        answer_text="Dead letters with their reasons",
        errors=(*_CHANGE,),
    ),
    Operation(
        at=f"POST {_GROUP}/dead/redrive",
        tag="groups",
        summary="Publish dead letters again to the topic names that they were published to, once each",
        handler=durable_dead_letters.redrive_dead,
        query=InNamespace,
        body=model.DeadSelection,
        answer=model.DeadOutcome,
        answer_text="What became of them",
        extra_s=10.0,
        errors=_CHANGE,
    ),
    Operation(
        at=f"POST {_GROUP}/dead/drop",
        tag="groups",
        summary="List dead letters no more. Their topic keeps the records as long as its retention says",
        handler=durable_dead_letters.drop_dead,
        query=InNamespace,
        body=model.DeadSelection,
        answer=model.DeadOutcome,
        answer_text="What became of them",
        extra_s=10.0,
        errors=_CHANGE,
    ),
)
