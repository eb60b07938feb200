"""The layer ``consensus``: Raft groups on a log and a journal, under every fault that a machine can have."""
