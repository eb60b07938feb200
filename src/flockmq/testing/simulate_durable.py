"""``python -m flockmq.testing.simulate_durable``: another name of ``flockmq.testing.simulate --layers nodes``."""

from __future__ import annotations

import sys

from flockmq.testing.simulate import main

if __name__ == "__main__":
    sys.exit(main(["--layers", "nodes", *sys.argv[1:]]))
