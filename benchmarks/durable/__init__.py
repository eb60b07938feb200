"""Durable topics on three real nodes, side by side with NATS JetStream (three replicas) in one run."""
