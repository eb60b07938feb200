"""Records to batches to outcomes to PUBACKs: the way of a publish into its partition's log.

Decides which partition takes a message, and what its publisher hears. Imports none of the other rooms.
"""
