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
NO_SPACE_AFTER_FOLDERS = "[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace"


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
        click.echo(script.replace("    return 0\n", f"    {NO_SPACE_AFTER_FOLDERS}\n    return 0\n") if shell == "bash" else script)
