"""Consensus: a pure Raft, one state machine per group, many groups per node."""
