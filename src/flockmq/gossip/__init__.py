"""Who is there, and what each node says of itself: SWIM membership and owned maps, pure."""
