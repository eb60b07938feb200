"""Asking a log: where it begins and ends, which offset was at a time, its batches, and waiting for more.

Decides which replica answers, this node's own or another's. Imports ``replicas``, ``machine``, ``calls``, ``state``.
"""
