"""Composition: configuration, broker, listeners and admin API become one running process."""
