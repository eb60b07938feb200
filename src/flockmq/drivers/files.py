"""How many connections the operating system has room for: each is an open file of this process.

```
 file limit = clients + RESERVED for the store, links to other nodes, the admin API and handshakes
```
"""

from __future__ import annotations

import resource
from typing import Final

RESERVED_MIN: Final = 256
RESERVED_MAX: Final = 16_384
RESERVED_SHARE: Final = 8
"""An eighth of all files, within these bounds, and never more than half, is not for clients."""


def file_limit() -> int:
    """How many files this process may have open; 0: as many as it likes."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def connections_within(files: int) -> int:
    """How many clients leave enough files for everything else; 0: there is no limit."""
    reserved = min(max(files // RESERVED_SHARE, RESERVED_MIN), RESERVED_MAX, files // 2)
    return files - reserved
