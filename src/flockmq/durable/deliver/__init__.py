"""Commits to subscribers: live, catching up, or replaying history.

Decides which client gets which committed message, and when. ``shared_batches`` shares work between sessions; which
member of a ``$share`` group gets a message is decided in ``routing/shared.py``. Imports ``logs``.
"""
