"""Commits to subscribers: live, catching up, or replaying history.

Decides which client gets which committed message, and when. Imports ``logs``.
"""
