"""Layered configuration: TOML file, environment, flags."""
