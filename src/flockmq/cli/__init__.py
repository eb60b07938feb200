"""The ``flockmq`` command line."""
