"""Bytes that are not MQTT: WebSocket, PROXY header, frames and handshake between nodes."""
