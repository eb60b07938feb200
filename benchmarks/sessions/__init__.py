"""Persistent sessions on real nodes, and one line side by side with mosquitto in one run."""
