"""Consensus on this machine: three processes, replication 3, durable on a majority before the answer."""
