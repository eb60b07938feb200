"""The layer ``gossip``: membership of small and large clusters, by datagrams and links."""
