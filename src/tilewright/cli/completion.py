"""``tilewright completion``: a script by which a shell completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "fish")
_BASH = """_tilewright() {{
    local words= current="${{COMP_WORDS[COMP_CWORD]}}" path= word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path $word" in
{paths}
        esac
    done
    case "$path" in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ $current != -* ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _tilewright tilewright
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script that makes a shell complete the commands and options of "
        "tilewright. Put the line below into ~/.bashrc, or its equivalent into the start-up file "
        "of another shell.",
        example='eval "$(tilewright completion bash)"',
        options={f"shell {'|'.join(SHELLS)}": "the shell"},
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    print(script(args.shell, args.top), end="")
    return 0


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the completion script for a shell of `SHELLS`."""
    offered = list(_offered(parser, ""))
    if shell == "fish":
        return "".join(line + "\n" for path, words in offered for line in _fish(path, words))
    paths = "\n".join(f'            "{path}") path="{path}" ;;' for path, _ in offered if path)
    words = "\n".join(f'        "{path}") words="{" ".join(words)}" ;;' for path, words in offered)
    return (_ZSH if shell == "zsh" else "") + _BASH.format(paths=paths, words=words)


def _offered(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command's path (`` predict fit``) and the words that may follow it."""
    words: list[str] = []
    inner: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        words += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            inner.update(action.choices)
        if action.choices is not None:
            words += map(str, action.choices)
    yield path, words
    for name, command in inner.items():
        yield from _offered(command, f"{path} {name}")


def _fish(path: str, words: list[str]) -> Iterator[str]:
    condition = " ; and ".join(f"__fish_seen_subcommand_from {w}" for w in path.split())
    given = f"-n '{condition}' " if condition else "-n __fish_use_subcommand "
    yield f"complete -c tilewright {given}-a '{' '.join(words)}'"
