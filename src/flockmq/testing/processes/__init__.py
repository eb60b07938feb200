"""Real processes with nothing but Raft groups in them: for benchmarks, and for tests that kill, pause and corrupt."""
