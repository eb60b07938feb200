"""``flockmq doctor``: looks at a cluster as an operator would, and says whether it is well.

```
 the node's API --> members, links, round trips, clocks, versions, voters, partitions --> a finding each:
 this machine   --> names resolve, ports answer, cookie and secret files are private ------> ok | warn | fail
```
The exit code is 1 when anything failed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.cluster import hidden_warning
from flockmq.cli.output import JsonOption, print_json, print_table
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import Cluster, Decisions, Member

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"
LIVE: Final = ("alive", "suspect")
RTT_WARN_MS: Final = 10.0
RTT_FAIL_MS: Final = 100.0
CLOCK_WARN_MS: Final = 1_000.0
CLOCK_FAIL_MS: Final = 60_000.0
"""Retained messages from further in the future are refused."""
CONNECT_S_MAX: Final = 2.0
SECRET_FILES: Final = ("key_file", "key_password_file", "password_file", "jwt_secret_file", "token_file")
"""Settings that name a file which only the broker's user should be able to read."""


_DAMAGED: Final = (
    "other replicas serve them, and their bytes are fetched and written back; where there is no other replica they are "
    "lost. Look at the disk of the node"
)
_DIFFERING: Final = "a safety violation; stop nothing and change nothing before the log of the node was read"


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it."""

    check: str
    subject: str
    verdict: str
    text: str


def doctor(
    *,
    server: ServerOption = SERVER_DEFAULT,
    cookie_file: Annotated[Path | None, typer.Option("--cookie-file", help="Cookie file to look at.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a cluster: links, round trips, clocks, versions, voters, partitions, names, ports and the cookie."""
    client = admin_client(server)
    cluster = client.cluster()
    findings = [*examine(cluster), *reach(cluster), *look_at_cookie(cookie_file), *look_at_secrets(client.config())]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        print_table(["CHECK", "SUBJECT", "", "FINDING"], findings)
    if any(finding.verdict == FAIL for finding in findings):
        raise typer.Exit(1)


def examine(cluster: Cluster) -> list[Finding]:
    """What the node's own view tells."""
    findings = _formation(cluster)
    live = [member for member in cluster.members if member.state in LIVE]
    for member in cluster.members:
        findings += _liveness(member)
    for member in live:
        if not member.is_self and member.linked:
            findings += [_round_trip(member), _clock(member)]
    versions = sorted({member.version for member in live})
    if len(versions) > 1:
        findings.append(
            Finding("versions", cluster.node, WARN, f"{', '.join(versions)} run side by side; finish the upgrade.")
        )
    elif versions:
        findings.append(Finding("versions", cluster.node, OK, f"All nodes run {versions[0]}."))
    return [*findings, *_quorum(cluster), *_partitions(cluster.node, cluster.decisions)]


def _quorum(cluster: Cluster) -> list[Finding]:
    """Whether the voters of cluster state have a majority."""
    cores: dict[str, bool] = {}
    for one in cluster.members:
        if one.role == "core" and one.state != "left":
            # A node with a new disk has a new id: the name is alive when one of its ids is.
            cores[one.name] = cores.get(one.name, False) or one.state in LIVE
    alive = sum(cores.values())
    decisions = cluster.decisions
    voters = decisions.voters if decisions is not None else []
    why = _why_undecided(cluster, has_cores=bool(cores))
    if why:
        return [Finding("quorum", cluster.node, FAIL, why)]
    away = [name for name in voters or cores if not cores.get(name, False)]
    voting = len(voters) - len(away)
    if (voters and 2 * voting <= len(voters)) or (cores and not alive):
        share = (
            f"{voting} of {counted(len(voters), 'voter')} {'is' if voting == 1 else 'are'}"
            if voters
            else "No core node is"
        )
        text = (
            f"{share} alive, which is no majority: topics, clients and members can't change, and logs that need the "
            f"others take no records; start {', '.join(away)}."
        )
        return [Finding("quorum", cluster.node, FAIL, text)]
    text = ""
    if decisions is not None and decisions.warning:
        text = decisions.warning
    elif decisions is not None and voters and decisions.leader is None:
        text = "The voters of cluster state have no leader right now; ask again in a few seconds."
    elif alive == 2:
        text = "Two core nodes are alive: when one of them fails nothing can be decided; start a third."
    return [Finding("quorum", cluster.node, WARN, text)] if text else []


def _why_undecided(cluster: Cluster, *, has_cores: bool) -> str:
    """Why no node can decide about cluster state, for reasons other than nodes that are down."""
    if cluster.state != "formed":
        return ""  # what it waits for is told already
    if not has_cores:
        return (
            "The cluster has no core node, so nothing can be decided or stored; start core nodes with --join to a node "
            "of it."
        )
    decisions = cluster.decisions
    if decisions is not None and not decisions.voters and not decisions.index:
        return (
            "No node holds the cluster state, so nothing can be decided. Ask again in a few seconds; if that lasts, "
            "an edge node founded this cluster: start a core node with an empty data folder and without --join, then "
            "start the others with empty data folders and --join to it."
        )
    return ""


def _partitions(node: str, decisions: Decisions | None) -> list[Finding]:
    if decisions is None or not (decisions.partitions or decisions.hidden_partitions):
        return []
    counts = (
        (decisions.lost, "whose data is gone with the stores of most replicas", FAIL),
        (decisions.without_leader, "without leader", FAIL),
        (decisions.stopped, "with a replica that stopped (the log of its node says why)", FAIL),
        (decisions.damaged, f"with damaged records on a replica: {_DAMAGED}", FAIL),
        (decisions.differing, f"with replicas that differ: {_DIFFERING}", FAIL),
        (decisions.replica_away, "with a replica away", WARN),
        (decisions.few_copies, "with too few copies", WARN),
    )
    findings = [
        Finding("partitions", node, verdict, f"{count:,} {what}; see `flockmq partition list --unhealthy`.")
        for count, what, verdict in counts
        if count
    ]
    if hidden := hidden_warning(decisions):
        findings.append(Finding("partitions", node, WARN, hidden))
    return findings or [Finding("partitions", node, OK, "All have a leader and the copies that are wanted.")]


def _formation(cluster: Cluster) -> list[Finding]:
    if cluster.state == "formed":
        found = [Finding("cluster", cluster.node, OK, f"Belongs to cluster {cluster.id}.")]
        return [*found, Finding("cluster", cluster.node, WARN, cluster.reason)] if cluster.reason else found
    if cluster.state == "off":
        return [Finding("cluster", cluster.node, WARN, f"Talks to no other node: {cluster.reason}.")]
    return [Finding("cluster", cluster.node, FAIL, cluster.reason)]


def _liveness(member: Member) -> list[Finding]:
    if member.is_self or member.state == "left":
        return []
    if member.state == "dead":
        text = (
            "Does not answer; start it, or check its network. If it stays away it is taken out by itself after "
            "cluster.autoclean_ms (5 minutes unless set, 0: never), as long as a majority is there to decide so; "
            f"`flockmq node remove {member.name}` does it at once."
        )
        return [Finding("member", member.name, FAIL, text)]
    if member.state == "suspect":
        return [Finding("member", member.name, WARN, "Did not answer the last probes; it may be overloaded.")]
    if not member.linked:
        text = f"Answers datagrams, but there is no connection to {member.host}:{member.port}; is TCP let through?"
        return [Finding("member", member.name, FAIL, text)]
    return [Finding("member", member.name, OK, "Alive and linked.")]


def _round_trip(member: Member) -> Finding:
    rtt = member.rtt_ms
    if rtt is None:
        return Finding("round trip", member.name, WARN, "Not measured yet; ask again in a few seconds.")
    text = f"{rtt:.2f} ms"
    if rtt > RTT_FAIL_MS:
        return Finding("round trip", member.name, FAIL, f"{text}: a cluster does not work well above 100 ms.")
    if rtt > RTT_WARN_MS:
        return Finding("round trip", member.name, WARN, f"{text}: nodes should be less than 10 ms apart.")
    return Finding("round trip", member.name, OK, text)


def _clock(member: Member) -> Finding:
    offset = member.clock_offset_ms
    if offset is None:
        return Finding("clock", member.name, WARN, "Not measured yet; ask again in a few seconds.")
    text = f"{offset:+.0f} ms against this node"
    if abs(offset) > CLOCK_FAIL_MS:
        return Finding("clock", member.name, FAIL, f"{text}: its retained messages are refused; run NTP.")
    if abs(offset) > CLOCK_WARN_MS:
        return Finding("clock", member.name, WARN, f"{text}: run NTP on both.")
    return Finding("clock", member.name, OK, text)


def reach(cluster: Cluster) -> list[Finding]:
    """Whether names resolve and ports answer from this machine."""
    findings = []
    for member in cluster.members:
        if member.state in ("dead", "left"):
            continue
        try:
            found = socket.getaddrinfo(member.host, member.port, type=socket.SOCK_STREAM)
        except OSError as error:
            text = f"{member.host} does not resolve here ({error.strerror}); fix DNS or set cluster.advertise_host."
            findings.append(Finding("name", member.name, FAIL, text))
            continue
        addresses = ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found))
        findings.append(Finding("name", member.name, OK, f"{member.host} is {addresses}."))
        findings.append(_port(member))
    return findings


def _port(member: Member) -> Finding:
    try:
        with socket.create_connection((member.host, member.port), timeout=CONNECT_S_MAX):
            return Finding("port", member.name, OK, f"TCP port {member.port} answers.")
    except OSError as error:
        text = f"TCP port {member.port} can't be reached from here ({error}); fine if only nodes may reach it."
        return Finding("port", member.name, WARN, text)


def look_at_cookie(file: Path | None) -> list[Finding]:
    """Whether this user's cookie is private."""
    from flockmq.security.cookie import cookie_path

    path = file or cookie_path()
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
        if mode & 0o077:
            text = f"Others on this machine can read it (mode {mode:o}): chmod 600 {path}"
            return [Finding("cookie", str(path), FAIL, text)]
        return [Finding("cookie", str(path), OK, "Only its owner can read it.")]
    if file is not None:
        return [Finding("cookie", str(path), FAIL, "Can't be read.")]
    return []


def look_at_secrets(config: Mapping[str, object]) -> list[Finding]:
    """Whether the keys, passwords and tokens that the node's configuration names are private, those of this machine."""
    from flockmq.security.files import exposure

    findings = []
    for path in _secret_files(config):
        done = exposure(Path(path))
        if done:
            text = f"Other users of this machine can {done} it: chmod 600 {path}"
            findings.append(Finding("secret", path, WARN, text))
    return findings


def _secret_files(config: Mapping[str, object]) -> list[str]:
    found: dict[str, None] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= dict.fromkeys(_secret_files(value))
        elif name in SECRET_FILES and isinstance(value, str) and value:
            found[value] = None
    return list(found)
