"""Ways to find other nodes, as plugins: one file each, found by the entry point group ``flockmq.discovery``."""
