"""The log: columnar batches, segments, the shared journal, and what a disk must do for them. Pure: disk is a port."""
