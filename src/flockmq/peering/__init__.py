"""What brokers say to each other: routes, forwarded runs, sessions, retained messages. Pure."""
