"""``flockmq completion``: scripts that let a shell complete commands, options and their choices.

```
 commands and options, written into the script --> the shell completes by itself: no Python is started at a key press
```
Print the script again after an upgrade; ``source <(flockmq completion bash)`` in a profile does.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Final, Literal

import typer

from flockmq.cli.describe import arguments, options, subcommands, summary, walk

Shell = Literal["bash", "zsh", "fish"]
HELP_NAMES: Final = ("--help", "-h")
_POSIX: Final = """\
_flockmq() {{
{locals}
  for ((i = {first}; i < {current}; i++)); do
    case "$place {word}" in
      {places}) place="$place {word}" ;;
    esac
  done
  case "$place {before}" in
{values}
  esac
  case "$place" in
{choices}
  esac
  {reply}
}}
{activate}
"""
_BASH: Final = {
    "locals": '  local place="" i found=""\n  local current="${COMP_WORDS[COMP_CWORD]}"',
    "first": "1",
    "current": "COMP_CWORD",
    "word": "${COMP_WORDS[i]}",
    "before": "${COMP_WORDS[COMP_CWORD - 1]}",
    "reply": 'COMPREPLY=($(compgen -W "$found" -- "$current"))',
    "activate": "complete -o default -F _flockmq flockmq",
}
_ZSH: Final = {
    "locals": '  local place="" found="" i',
    "first": "2",
    "current": "CURRENT",
    "word": "${words[i]}",
    "before": "${words[CURRENT - 1]}",
    "reply": 'if [[ -n "$found" ]]; then compadd -- ${=found}; else _files; fi',
    "activate": "compdef _flockmq flockmq",
}
_FISH_PLACE: Final = """\
function __flockmq_place
    set -l place
    for word in (commandline -opc)[2..-1]
        if contains -- (string join ' ' $place $word) {places}
            set -a place $word
        end
    end
    test (string join ' ' $place) = "$argv"
end
"""


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands and options in a shell.

    bash and zsh: put `source <(flockmq completion bash)` (or zsh) into ~/.bashrc (or ~/.zshrc, below compinit). fish:
    `flockmq completion fish > ~/.config/fish/completions/flockmq.fish`.
    """
    from typer.main import get_command

    from flockmq.cli.main import make_app

    print(script(shell, get_command(make_app())), end="")


def script(shell: Shell, root: Any) -> str:
    """The script for a shell."""
    if shell == "fish":
        return _fish(root)
    return _posix(root, _BASH if shell == "bash" else _ZSH)


def _posix(root: Any, words: dict[str, str]) -> str:
    places, choices = [], []
    values: dict[str, list[str]] = {"": []}  # any value: the shell completes file names
    for path, command in walk((), root):
        place = "".join(f" {name}" for name in path)
        if path:
            places.append(f'"{place}"')
        choices.append(f'    "{place}") found="{" ".join(_words(command))}" ;;')
        for one in options(command):
            if one.metavar:
                values.setdefault(" ".join(one.choices), []).extend(f'"{place} {name}"' for name in one.names)
    cases = [
        f'    {"|".join(patterns)}) found="{found}"; {words["reply"]}; return ;;'
        for found, patterns in values.items()
        if patterns
    ]
    return _POSIX.format(**words, places="|".join(places), values="\n".join(cases), choices="\n".join(choices))


def _words(command: Any) -> list[str]:
    """What may stand at a place: commands, choices of arguments, options."""
    named = [choice for one in arguments(command) for choice in one.choices]
    named += [name for one in options(command) for name in one.names]
    return [*subcommands(command), *dict.fromkeys([*named, *HELP_NAMES])]


def _fish(root: Any) -> str:
    places = [" ".join(path) for path, _ in walk((), root) if path]
    lines = [_FISH_PLACE.format(places=" ".join(map(shlex.quote, places))), "complete -c flockmq -f"]
    for path, command in walk((), root):
        chosen = [choice for one in arguments(command) for choice in one.choices]
        at = f"complete -c flockmq -n {shlex.quote('__flockmq_place ' + ' '.join(path))}"
        for name, below in subcommands(command).items():
            lines.append(f"{at} -a {name} -d {shlex.quote(summary(below))}")
        if chosen:
            lines.append(f"{at} -a {shlex.quote(' '.join(chosen))}")
        for one in options(command):
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in one.names)
            value = f" -x -a {shlex.quote(' '.join(one.choices))}" if one.choices else " -r -F" if one.metavar else ""
            lines.append(f"{at} {names}{value} -d {shlex.quote(one.text)}")
    return "\n".join(lines) + "\n"
