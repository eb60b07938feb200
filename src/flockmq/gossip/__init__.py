"""Which nodes are there, and what each says of itself: SWIM membership and owned maps, pure."""
