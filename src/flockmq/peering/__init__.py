"""What brokers say to each other: routes, forwarded runs, sessions, wills, retained messages. Pure."""
