from __future__ import annotations

from flockmq.config.lines import key_lines, line_of

TEXT = '''# a comment with [brackets]
[node]
name = "n1@host"  # [not.a.table]

[limits]
packet_bytes_max = "1MB"
"quoted" = 1
notes = """
inflight_max = 5
[log]
"""
inflight_max = 6

[listeners.tcp.default]
bind = "a:1"
limits.receive_max = 3
tls = { cert_file = "x" }
'''


def test_lines_of_keys_and_tables() -> None:
    lines = key_lines(TEXT)
    assert lines["node", "name"] == 3
    assert lines[("limits",)] == 5
    assert lines["limits", "packet_bytes_max"] == 6
    assert lines["limits", "quoted"] == 7
    assert lines["limits", "inflight_max"] == 12
    assert lines["listeners", "tcp", "default", "limits", "receive_max"] == 16
    assert ("log",) not in lines


def test_within_an_inline_table_it_is_the_outer_key() -> None:
    assert line_of(key_lines(TEXT), ("listeners", "tcp", "default", "tls", "cert_file")) == 17


def test_what_is_nowhere_has_no_line() -> None:
    assert line_of(key_lines(TEXT), ("elsewhere", "key")) is None
