"""The part of the admin client that is about consumer groups: what they are, what members fetch, dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flockmq.admin import durable_groups_model as model
from flockmq.admin.model import Page
from flockmq.client.calls import DECISION_S, ApiCalls, v1

DEFAULT_NAMESPACE: Final = "default"
REDRIVE_S: Final = 15.0


class GroupCalls(ApiCalls):
    """See the module."""

    def groups(self, *, namespace: str | None = None, lag: bool = False) -> Iterator[model.GroupInfo]:
        """Consumer groups of a namespace, or of all; with their lag when asked."""
        return self._listing(v1("groups"), Page[model.GroupInfo], {"namespace": namespace, "lag": lag or None})

    def create_group(self, request: model.GroupRequest) -> model.GroupInfo:
        """Create a group; what is published after this returns is the group's."""
        return self._send("POST", v1("groups"), model.GroupInfo, request)

    def group(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> model.GroupDetails:
        """One group, where it stands, and its members; NotFound when there is none of that name."""
        return self._get(v1("groups", name, namespace=namespace), model.GroupDetails)

    def alter_group(
        self, name: str, change: model.GroupChange, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.GroupInfo:
        """Change a group; what the change leaves out stays as it is."""
        return self._send("PATCH", v1("groups", name, namespace=namespace), model.GroupInfo, change)

    def pause_group(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> model.GroupInfo:
        """Hand out no more records."""
        return self._send("POST", v1("groups", name, "pause", namespace=namespace), model.GroupInfo)

    def resume_group(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> model.GroupInfo:
        """Hand out records again."""
        return self._send("POST", v1("groups", name, "resume", namespace=namespace), model.GroupInfo)

    def reset_group(self, name: str, to: str, *, namespace: str = DEFAULT_NAMESPACE) -> model.GroupInfo:
        """Begin a new generation at a start: ``earliest``, ``latest``, ``offset:...`` or ``time:...``."""
        path = v1("groups", name, "reset", namespace=namespace)
        return self._send("POST", path, model.GroupInfo, model.GroupReset(to=to))

    def delete_group(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Forget a group; the topic with its dead letters stays."""
        self._delete(v1("groups", name, namespace=namespace))

    # --- members ----------------------------------------------------------------------------------------------------

    def fetch_records(
        self, name: str, request: model.FetchRequest, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.Fetch:
        """Acknowledge what is done, then take records, waiting for some if the request says so."""
        path = v1("groups", name, "fetch", namespace=namespace)
        return self._send("POST", path, model.Fetch, request, wait_s=request.wait_ms / 1000 + DECISION_S)

    def ack_records(self, name: str, tokens: Sequence[str], *, namespace: str = DEFAULT_NAMESPACE) -> model.Settled:
        """Records are done. Conflict: no token changed anything."""
        request = model.AckRequest(tokens=list(tokens))
        return self._send("POST", v1("groups", name, "ack", namespace=namespace), model.Settled, request)

    def nack_records(
        self,
        name: str,
        tokens: Sequence[str],
        *,
        delay_ms: int | None = None,
        reason: str = "",
        dead: bool = False,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> model.Settled:
        """Deliver records again after a delay (None: the group's backoff), or make them dead letters at once."""
        request = model.NackRequest(tokens=list(tokens), delay_ms=delay_ms, reason=reason, dead=dead)
        return self._send("POST", v1("groups", name, "nack", namespace=namespace), model.Settled, request)

    def extend_records(
        self, name: str, tokens: Sequence[str], ms: int, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.Settled:
        """Hold records longer."""
        request = model.ExtendRequest(tokens=list(tokens), ms=ms)
        return self._send("POST", v1("groups", name, "extend", namespace=namespace), model.Settled, request)

    def peek_records(
        self, name: str, *, limit: int = 10, namespace: str = DEFAULT_NAMESPACE
    ) -> list[model.GroupMessage]:
        """The oldest records that are not settled; nothing is handed out."""
        path = v1("groups", name, "peek", namespace=namespace, limit=limit)
        return self._get(path, model.GroupMessages).messages

    # --- dead letters -----------------------------------------------------------------------------------------------

    def dead_letters(self, name: str, *, limit: int = 10, namespace: str = DEFAULT_NAMESPACE) -> model.DeadLetters:
        """Dead letters that were neither redriven nor dropped, oldest first."""
        path = v1("groups", name, "dead", namespace=namespace, limit=limit)
        return self._get(path, model.DeadLetters, wait_s=DECISION_S)

    def redrive_dead(
        self, name: str, ids: Sequence[str] = (), *, every: bool = False, namespace: str = DEFAULT_NAMESPACE
    ) -> model.DeadOutcome:
        """Publish dead letters again where they came from: those named, or the oldest ones."""
        return self._settle_dead(name, "redrive", model.DeadSelection(ids=list(ids), all=every), namespace)

    def drop_dead(
        self, name: str, ids: Sequence[str] = (), *, every: bool = False, namespace: str = DEFAULT_NAMESPACE
    ) -> model.DeadOutcome:
        """List dead letters no more: those named, or the oldest ones."""
        return self._settle_dead(name, "drop", model.DeadSelection(ids=list(ids), all=every), namespace)

    def _settle_dead(self, name: str, how: str, request: model.DeadSelection, namespace: str) -> model.DeadOutcome:
        path = v1("groups", name, "dead", how, namespace=namespace)
        return self._send("POST", path, model.DeadOutcome, request, wait_s=REDRIVE_S)
