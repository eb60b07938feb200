"""Thin asyncio drivers between sockets and the pure broker."""
