"""What the cluster agrees on: nodes, namespaces, clients, topics and where their partitions live. Pure."""
