"""Durable topics: consensus joined with the clustered broker. Pure."""
