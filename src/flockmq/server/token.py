"""The admin token on its way to its user: given in a file, or minted and left with the user of the broker.

```
 first start: mint --> the user's credentials file (the token)        DATA_DIR (its hash): this node takes it
 a cluster is founded --> cluster state (the founder's hash): every node takes it, too, once it knows the state
```
Brokers keep no more than the hash. A node's own token is good for that node alone, and stays so in a cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.errors import ConfigError
from flockmq.security import credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flockmq.server.log import Log

TOKEN_SETTING: Final = "admin_token_hash"  # noqa: S105  (a name)
"""The setting of cluster state with the hash of the admin token."""


def token_hash(token_file: str, data_dir: Path, server_url: str, cluster: str, log: Log) -> str:
    """The hash that tokens are compared with. The user's copy is kept by address and ``cluster``, the cluster's id."""
    if token_file:
        return credentials.token_hash(read_token(Path(token_file)))
    known_hash = credentials.load_or_mint(data_dir, server_url)
    if not credentials.recognise(server_url, known_hash, cluster):
        log.event(
            "warning",
            "admin_token_missing",
            message="the credentials file of this user has no token for this broker; run `flockmq login` with it, or "
            f"delete {data_dir / credentials.HASH_FILE} and restart to get a new one",
        )
    return known_hash


def accepts(token: str, known_hash: str, settings: Mapping[str, object]) -> bool:
    """Whether a token opens the admin API: it is this node's own, or the one in the settings of the cluster.

    Both are always compared, so that the time taken reveals nothing.
    """
    shared = settings.get(TOKEN_SETTING)
    hashes = [known_hash, shared if isinstance(shared, str) else ""]
    matches = [credentials.verify(token, one) for one in hashes if one]
    return any(matches)


def to_share(known_hash: str, settings: Mapping[str, object]) -> str:
    """The hash that the founder of a cluster puts into its settings; nothing when the settings have one."""
    return "" if settings.get(TOKEN_SETTING) else known_hash


def read_token(path: Path) -> str:
    """The token that ``admin.token_file`` holds."""
    try:
        token = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"admin.token_file {path} can't be read ({error}).") from None
    if len(token) < 16:
        raise ConfigError(f"The token in admin.token_file {path} has less than 16 characters; use a longer one.")
    return token
