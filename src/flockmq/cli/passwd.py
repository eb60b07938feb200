"""``flockmq passwd``: users of a password file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flockmq.cli.output import JsonOption, print_change
from flockmq.errors import FlockError


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The password file; it is made when it does not exist.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The user to add or change.")],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Take the user out of the file.")] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the password from standard input, not asked for.")
    ] = False,
    no_scram: Annotated[
        bool, typer.Option("--no-scram", help="Keep no key for SCRAM-SHA-256 beside the hash.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a user to a password file, or change its password. The password is asked for, never an argument."""
    from flockmq.security.passwords import delete_user, set_password
    from flockmq.security.scram import ITERATIONS_DEFAULT

    if delete:
        delete_user(file, user)
        outcome = "deleted"
    else:
        password = _read_password(user) if stdin or not sys.stdin.isatty() else _ask_password(user)
        added = set_password(file, user, password, scram_iterations=0 if no_scram else ITERATIONS_DEFAULT)
        outcome = "added" if added else "changed"
    said = f"User {user!r} was {outcome} in {file}."
    print_change(said, as_json=as_json, file=str(file), user=user, outcome=outcome)


def _read_password(user: str) -> bytes:
    password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    if not password:
        raise FlockError(f"No password for {user!r} came on standard input; write it there, on one line.")
    return password


def _ask_password(user: str) -> bytes:
    import getpass

    password = getpass.getpass(f"Password for {user}: ")
    if not password:
        raise FlockError("An empty password is no password; nothing was changed.")
    if getpass.getpass("Once more: ") != password:
        raise FlockError("The two passwords differ; nothing was changed.")
    return password.encode()
