"""Ways to find other nodes, as plugins."""
