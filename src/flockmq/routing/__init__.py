"""Where messages go: subscriptions, topic trie, route plans, shared groups, retained messages."""
