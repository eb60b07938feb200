"""``python -m flockmq`` is the same as ``flockmq``."""

from flockmq.cli.main import main

main()
