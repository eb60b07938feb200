"""The layer ``nodes``: brokers, membership, cluster state and durable topics, with their clients."""
