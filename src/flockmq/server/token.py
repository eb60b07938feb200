"""The admin token on its way to who may use it: given in a file, or minted and left with the user of the broker."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from flockmq.errors import ConfigError
from flockmq.security import credentials

if TYPE_CHECKING:
    from flockmq.server.log import Log


def token_hash(token_file: str, data_dir: Path, server_url: str, log: Log) -> str:
    """The hash that tokens are compared with."""
    if token_file:
        return credentials.token_hash(read_token(Path(token_file)))
    known_hash = credentials.load_or_mint(data_dir, server_url)
    if not _user_has(known_hash, server_url):
        log.event(
            "warning",
            "admin_token_missing",
            message="the credentials file of this user has no token for this broker; run `flockmq login` with it, or "
            f"delete {data_dir / credentials.HASH_FILE} and restart to get a new one",
        )
    return known_hash


def read_token(path: Path) -> str:
    """The token that ``admin.token_file`` holds."""
    try:
        token = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"admin.token_file {path} can't be read ({error}).") from None
    if len(token) < 16:
        raise ConfigError(f"The token in admin.token_file {path} has less than 16 characters; use a longer one.")
    return token


def _user_has(known_hash: str, server_url: str) -> bool:
    """Whether the user can reach this broker. A token kept for it under another port is kept for this one, too."""
    environment = {name: value for name, value in os.environ.items() if name != "FLOCKMQ_TOKEN"}
    token = credentials.load(server_url, environment)
    if token is not None and credentials.verify(token, known_hash):
        return True
    path = credentials.credentials_path()
    servers = tomllib.loads(path.read_text("utf-8")).get("servers", {}) if path.exists() else {}
    for entry in servers.values():
        if credentials.verify(entry["token"], known_hash):
            credentials.save(server_url, entry["token"])
            return True
    return False
