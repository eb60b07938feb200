"""The whole broker as one pure object: bytes and time in, bytes out per connection."""
