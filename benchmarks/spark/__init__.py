"""Spark on FlockMQ, measured; see ``__main__``."""
