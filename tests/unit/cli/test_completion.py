from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from flockmq.cli.main import COMMANDS, run


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["fl"], None),
        (["top"], ["topic"]),
        (["topic", "cr"], ["create"]),
        (["topic", "create", "--re"], ["--replication-factor", "--retention"]),
        (["topic", "create", "name", "--ack", ""], ["leader", "memory", "quorum"]),
        (["topic", "create", "--ack", "quorum", "--exch"], ["--exchange"]),
        (["start", "--role", "e"], ["edge"]),
        (["start", "--config", "fl"], ["flockmq.toml"]),
        (["completion", "z"], ["zsh"]),
        (["cluster", "leave", "--y"], ["--yes"]),
        (["--ver"], ["--version"]),
    ],
)
def test_bash_completes(
    typed: list[str], offered: list[str] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "completion.bash").write_text(script("bash", capsys))
    (tmp_path / "flockmq.toml").touch()
    # Falls back on file names as `complete -o default` does when the function has nothing to offer.
    told = f"""
        source completion.bash
        complete -p flockmq >&2
        COMP_WORDS=(flockmq {" ".join(shlex.quote(word) for word in typed)})
        COMP_CWORD={len(typed)}
        _flockmq flockmq {shlex.quote(typed[-1])} ''
        if (( ${{#COMPREPLY[@]}} == 0 )); then COMPREPLY=($(compgen -f -- {shlex.quote(typed[-1])})); fi
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", told], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == "complete -o default -F _flockmq flockmq\n"
    assert sorted(done.stdout.split()) == (offered or ["flockmq.toml"])


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = script(shell, capsys)
    assert all(name in printed for name in COMMANDS)
    assert "quorum leader memory" in printed
    assert ("compdef _flockmq flockmq" if shell == "zsh" else "complete -c flockmq") in printed
