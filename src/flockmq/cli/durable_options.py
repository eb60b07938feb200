"""What the commands on durable topics share: options, and sizes and ages as people write and read them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from flockmq.cli.output import tell
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError, RemoteProtocolError

if TYPE_CHECKING:
    from flockmq.client.admin import AdminClient
    from flockmq.log.starts import Start

T = TypeVar("T")
NAMESPACE_DEFAULT: Final = "default"
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", metavar="N", help="The namespace.")]
AnyNamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="N", help="Only what is in this namespace.")
]
WithHiddenOption = Annotated[bool, typer.Option("--all", help="Also hidden topics, which the cluster made for itself.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
_SIZES: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_AGES: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))


WHERE_HELP: Final = (
    "earliest, latest, offset:N (offset:SHARD=N,... with several shards), or time:2026-03-01T12:00:00Z (UTC without a "
    "zone)."
)


def parse_where(text: str, option: str, shard: int | None = None) -> Start:
    """Where a reader begins in a log, or in one shard, in the words that REST and MQTT take as well."""
    from flockmq.log.starts import parse_start

    try:
        start = parse_start(text)
    except ValueError as error:
        raise UsageError(f"{option} can't be used: {error}.") from None
    if shard is not None and start.by_shard is not None:
        raise UsageError(f"{option} names shards, and --shard does so as well; with --shard use offset:N.")
    return start


def in_namespace(namespace: str | None) -> str:
    """What a command that is advised has to say besides, so that it reaches what the advice is about."""
    return f" -n {namespace}" if namespace not in (None, NAMESPACE_DEFAULT) else ""


def confirm(question: str, *, yes: bool, details: str = "") -> None:
    """Ask before something that can't be undone, and say what will happen; a program must say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Standard input is no terminal to ask on; say --yes if you are sure.")
    if details:
        tell(details)
    if not typer.confirm(question, err=True):
        raise FlockError("Nothing was changed.")


def parse_retention(texts: list[str]) -> tuple[int | None, int | None]:
    """Age in milliseconds and size in bytes of ``7d``, ``10GB`` or both; ``none`` sets no limit."""
    found: dict[str, int] = {}
    parts = [part.strip() for one in texts for part in one.split(",")]
    for text in parts:
        if text.lower() == "none":
            if len(parts) > 1:
                raise UsageError(f"--retention can't be {', '.join(parts)!r}: none stands alone.")
            continue
        what, value = _retention(text)
        if what in found:
            raise UsageError(f"--retention can't be {', '.join(parts)!r}: that is two {what}s; give one of them.")
        found[what] = value
    return found.get("age"), found.get("size")


def _retention(text: str) -> tuple[str, int]:
    from flockmq.cluster.checks import NUMBER_MAX
    from flockmq.config.units import BYTES, MILLISECONDS, parse_number

    for what, unit in (("age", MILLISECONDS), ("size", BYTES)):
        try:
            value = 0 if text.isdigit() else parse_number(text, unit)
        except ValueError:
            continue
        if value >= NUMBER_MAX:
            raise UsageError(f"--retention can't be {text!r}: that is more than can be counted; none keeps everything.")
        if value:
            return what, value
        if not text.isdigit():
            raise UsageError(f"--retention can't be {text!r}: that keeps nothing; none keeps everything.")
    raise UsageError(f"--retention can't be {text!r}: give an age like 7d or 12h, a size like 10GB, both, or none.")


def check_filters(filters: list[str] | None) -> list[str] | None:
    """Refuse filters that no message could match."""
    from flockmq.mqtt.topics import check_topic_filter

    for one in filters or []:
        try:
            check_topic_filter(one.encode("utf-8", "surrogateescape"))
        except RemoteProtocolError as error:
            raise UsageError(f"--filter can't be {one!r}: {error}.") from None
    return filters


def check_namespace(client: AdminClient, namespace: str | None) -> None:
    """Nothing was found: is that because there is no such namespace?"""
    if namespace is not None:
        client.namespace(namespace)


def in_known_namespace(client: AdminClient, namespace: str | None, found: Iterable[T]) -> Iterator[T]:
    """What was found; when it is nothing, an error if that is because there is no such namespace."""
    is_empty = True
    for one in found:
        is_empty = False
        yield one
    if is_empty and namespace != NAMESPACE_DEFAULT:  # which is there also where there is no cluster
        check_namespace(client, namespace)


def retention_text(age_ms: int | None, size: int | None) -> str:
    """``7d``, ``10GB``, ``7d, 10GB`` or ``none``."""
    parts = []
    if age_ms:
        parts.append(age_text(age_ms))
    if size:
        parts.append(str(size_text(size)))
    return ", ".join(parts) or "none"


def age_text(age_ms: int) -> str:
    """A duration in the largest unit that shows all of it."""
    for unit_ms, name in _AGES:
        if age_ms % unit_ms == 0:
            return f"{age_ms // unit_ms}{name}"
    return f"{age_ms}ms"


def size_text(size: int | None) -> str | None:
    """A size in a few characters."""
    if size is None:
        return None
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} B"
