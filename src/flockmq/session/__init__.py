"""What a client's connection and session remember: windows, queues, subscriptions, timers."""
