"""Group 0 on this node: commands submitted and confirmed, the state followed, the applied barrier, the voters.

Decides what this node knows of the cluster state, and when that counts as current. Imports nothing of the other rooms.
"""
