"""The replicated state of a partition: cursor positions, QoS 2 packet ids, fences of replaced owners, sinks.

Decides what a committed batch changes, and which statements a leader adds to its log. Imports no other room.
"""
