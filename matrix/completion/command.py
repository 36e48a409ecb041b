"""`completion SHELL`: the script that makes a shell complete this tool's commands, options, specifications, runs and attempts."""

from __future__ import annotations

import click

from matrix.console import errors

PROGRAM, VARIABLE = "matrix", "_MATRIX_COMPLETE"
HOW = {
    "bash": 'eval "$(matrix completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(matrix completion zsh)"       # in ~/.zshrc, after compinit',
    "fish": "matrix completion fish | source       # in ~/.config/fish/config.fish",
}
# What click's scripts leave out, (theirs, ours): after a folder one goes on without a space, and bash is given names as they are typed.
BETTER = {
    "bash": [
        (
            "COMPREPLY+=($value)",
            '[[ ${COMP_WORDS[COMP_CWORD]} == [\\\'\\"]* ]] || printf -v value %q "$value"\n            COMPREPLY+=("$value")',
        ),
        ("    return 0\n", "    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace\n    return 0\n"),
    ],
    "zsh": [
        ("    local -a completions\n", "    local -a completions folders\n"),
        ('completions+=("$key")', 'if [[ "$key" == */ ]]; then folders+=("$key"); else completions+=("$key"); fi'),
        ('    if [ -n "$completions" ]; then\n', '    compadd -U -S "" -V folders -a folders\n\n    if [ -n "$completions" ]; then\n'),
    ],
    "fish": [],
}


@click.command(epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(list(HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes `matrix`: commands, options, specifications, runs, attempts.

    A shell completes programs by their name, so that is for `matrix`, as the package installs it, and not for `python -m matrix`.
    """
    from click.shell_completion import get_completion_class

    with errors():
        made = get_completion_class(shell)
        assert made is not None  # the choices are click's own shells
        script = made(context.find_root().command, {}, PROGRAM, VARIABLE).source()
        for theirs, ours in BETTER[shell]:
            script = script.replace(theirs, ours)
        click.echo(script)
