from __future__ import annotations

from pathlib import Path

from flockmq.config.sources import Origin, Setting, read_environment, read_file


def test_a_file_keeps_the_line_of_each_setting(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[node]\nname = "n@h"\n\n[admin]\nbind = ["a:1", "b:2"]\n')
    assert read_file(path) == [
        Setting(("node", "name"), "n@h", Origin("file", f"{path}:2")),
        Setting(("admin", "bind"), ["a:1", "b:2"], Origin("file", f"{path}:5")),
    ]


def test_two_underscores_part_section_and_key() -> None:
    environ = {"FLOCKMQ_LISTENERS__TCP__MY_PORT__BIND": "a:1", "FLOCKMQ_NODE__DATA_DIR": "/d", "HOME": "/root"}
    assert read_environment(environ) == [
        Setting(("listeners", "tcp", "my_port", "bind"), "a:1", Origin("env", "FLOCKMQ_LISTENERS__TCP__MY_PORT__BIND")),
        Setting(("node", "data_dir"), "/d", Origin("env", "FLOCKMQ_NODE__DATA_DIR")),
    ]
