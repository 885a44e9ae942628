"""``minikafka completion bash|zsh|fish``: a script for the shell, made of the commands' own parsers.

The script holds all subcommands, options and choices, so that a Tab starts no Python (0.2 s each time, as
argcomplete has it; shtab knows no fish). Where a value is free, the shell completes file names.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from minikafka.cli.shared.commands import OK

PROG = "minikafka completion"
_INSTALL = """\
bash:  eval "$(minikafka completion bash)"      in ~/.bashrc
zsh:   eval "$(minikafka completion zsh)"       in ~/.zshrc, below compinit
fish:  minikafka completion fish | source       in ~/.config/fish/config.fish
"""

Path = tuple[str, ...]


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka completion``."""
    options = argparse.ArgumentParser(
        prog=PROG,
        description="Print a script that lets a shell complete minikafka's commands and options.",
        epilog=_INSTALL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument("shell", choices=list(_SCRIPTS))
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Print a script. Returns the exit status."""
    arguments = parser().parse_args(argv)
    try:
        print(_SCRIPTS[arguments.shell](dict(_words())), end="", flush=True)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def command_parsers() -> dict[Path, argparse.ArgumentParser]:
    """The parser of each subcommand, and those of subcommands that have a module of their own."""
    from minikafka.cli.cluster import command as cluster
    from minikafka.cli.main import SUBCOMMANDS, load

    found = {(name,): load(module).parser() for name, (module, _) in SUBCOMMANDS.items()}
    return found | {("cluster", name): options for name, options in cluster.subcommand_parsers().items()}


def walk(parsers: Mapping[Path, argparse.ArgumentParser]) -> Iterator[tuple[Path, argparse.ArgumentParser]]:
    """All parsers with those below them, each with the words that lead there."""
    for path, options in parsers.items():
        yield path, options
        for action in options._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from walk({(*path, name): each for name, each in action.choices.items()})


def _words() -> Iterator[tuple[Path, list[str]]]:
    """What may follow each path: subcommands, options and choices of arguments.

    After ``(…, "--option")`` come its choices; nothing when its value is free.
    """
    from minikafka.cli.main import SUBCOMMANDS

    yield (), [*SUBCOMMANDS, "--help", "--version"]
    parsers = command_parsers()
    for path, options in walk(parsers):
        words = [each[-1] for each in parsers if each[:-1] == path]
        for action in options._actions:
            if action.help == argparse.SUPPRESS:
                continue
            words += action.option_strings
            choices = [str(each) for each in action.choices or ()]
            if not action.option_strings:
                words += choices
            elif action.nargs != 0:
                for option in action.option_strings:
                    yield (*path, option), choices
        yield path, words


def _bash(words: Mapping[Path, list[str]]) -> str:
    cases = "".join(f"        {_case(path)}) words={_quoted(words[path])} ;;\n" for path in sorted(words))
    return f"""\
_minikafka_words() {{
    found=1
    case $1 in
{cases}        *) words= found= ;;
    esac
}}
_minikafka() {{
    local IFS=$' \\t\\n' word words found path= current=${{COMP_WORDS[COMP_CWORD]}} index
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        [[ $word == -* ]] && continue
        _minikafka_words "$path$word "
        [[ -n $found ]] && path+="$word "
    done
    _minikafka_words "$path${{COMP_WORDS[COMP_CWORD-1]}} "
    if ((COMP_CWORD < 2)) || [[ ${{COMP_WORDS[COMP_CWORD-1]}} != -* || -z $found ]]; then
        _minikafka_words "$path"
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _minikafka minikafka
"""


def _zsh(words: Mapping[Path, list[str]]) -> str:
    cases = "".join(f"        {_case(path)}) offers=({_list(words[path])}) ;;\n" for path in sorted(words))
    return f"""\
#compdef minikafka
_minikafka_words() {{
    found=1
    case $1 in
{cases}        *) offers=() found= ;;
    esac
}}
_minikafka() {{
    local -a given=("${{words[@]}}") offers
    local word found way=
    integer index
    for ((index = 2; index < CURRENT; index++)); do
        word=$given[index]
        [[ $word == -* ]] && continue
        _minikafka_words "$way$word "
        [[ -n $found ]] && way+="$word "
    done
    _minikafka_words "$way$given[CURRENT-1] "
    if ((CURRENT < 3)) || [[ $given[CURRENT-1] != -* || -z $found ]]; then
        _minikafka_words "$way"
    fi
    if (($#offers)); then
        compadd -a offers
    else
        _files
    fi
}}
compdef _minikafka minikafka
"""


def _fish(words: Mapping[Path, list[str]]) -> str:
    cases = "".join(
        f"        case {_quoted(_key(path))}\n            printf '%s\\n' {_list(words[path])}\n"
        for path in sorted(words)
        if words[path]
    )
    known = " ".join(_quoted(_key(path)) for path in sorted(words))
    return f"""\
set -g __minikafka_known {known}
function __minikafka_words
    switch "$argv[1]"
{cases}    end
end
function __minikafka_complete
    set -l given (commandline -opc)
    set -l way ''
    for word in $given[2..]
        if not string match -q -- '-*' $word; and contains -- "$way$word " $__minikafka_known
            set way "$way$word "
        end
    end
    if test (count $given) -gt 1; and string match -q -- '-*' $given[-1]
        and contains -- "$way$given[-1] " $__minikafka_known
        set -l choices (__minikafka_words "$way$given[-1] ")
        if test (count $choices) -gt 0
            printf '%s\\n' $choices
        else
            __fish_complete_path (commandline -ct)
        end
        return
    end
    __minikafka_words $way
end
complete -c minikafka -f -a '(__minikafka_complete)'
"""


def _key(path: Path) -> str:
    return "".join(f"{word} " for word in path)


def _case(path: Path) -> str:
    return _quoted(_key(path))


def _quoted(text: str | Sequence[str]) -> str:
    text = text if isinstance(text, str) else " ".join(text)
    assert "'" not in text and "\\" not in text, text
    return f"'{text}'"


def _list(words: Sequence[str]) -> str:
    return " ".join(_quoted(word) for word in words)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


if __name__ == "__main__":
    sys.exit(main())
