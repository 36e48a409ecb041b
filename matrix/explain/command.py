"""`explain`: what the remains of a death prove; `--pid`: the autopsy of a job that hangs right now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrix.console import BAD_INPUT, Span, errors, fail

if TYPE_CHECKING:
    from matrix.explain.remains import Explained


@click.command()
@click.argument("files", nargs=-1)
@click.option(
    "--status", "statuses", multiple=True, metavar="STATUS", help="How it ended: 137, -11, SIGSEGV, 0:9, OOMKilled.  May be repeated."
)
@click.option("--slurm", multiple=True, metavar="STATE|FILE", help="OUT_OF_MEMORY, TIMEOUT, ..., or a file with the table of sacct.")
@click.option("--k8s", multiple=True, metavar="FILE", help="kubectl get pod -o json (or yaml), or kubectl describe pod.")
@click.option("--core", "cores", multiple=True, metavar="FILE", help="A core file.")
@click.option("--was-pid", type=click.IntRange(min=1), help="The pid that the job had, to find it in a log of the kernel.")
@click.option("--batches", metavar="N,N,...", help="Steps or batches at which it died, to tell whether there is a pattern.")
@click.option("--accum", type=click.IntRange(min=1), help="Micro-batches of an optimizer step, for --batches.")
@click.option("--epoch-steps", type=click.IntRange(min=1), help="Steps of an epoch, for --batches.")
@click.option(
    "--pid", type=click.IntRange(min=1), help="Autopsy of this process and its children, now; nothing is ended.  Writes a package."
)
@click.option("--looks", default=3, show_default=True, type=click.IntRange(2, 20), help="Looks that --pid takes.")
@click.option("--every", default=2.0, type=Span(least=0.2, most=600), help="Time of a look.  [default: 2s]")
@click.option("--json", "as_json", is_flag=True, help="Print it for machines.")
def explain(
    files: tuple[str, ...], statuses: tuple[str, ...], slurm: tuple[str, ...], k8s: tuple[str, ...], cores: tuple[str, ...],
    was_pid: int | None, batches: str | None, accum: int | None, epoch_steps: int | None, pid: int | None, looks: int, every: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Say what the remains of a death prove and what they do not.

    FILES are whatever is left of it, - for stdin: its log, faulthandler's text, a core, a crash report of macOS, a kernel log, sacct,
    kubectl.  They are told apart by their content, and read together: a line of the kernel counts when another file names its pid.
    The run folder of a `watch` that was killed itself is one too: what it had written by then is read."""
    with errors():
        given = [*files, *k8s, *cores]
        if pid is not None:
            if given or statuses or slurm or batches:
                raise click.UsageError("--pid looks at a process that lives; explain the remains of a dead one without it")
            _autopsy(pid, looks, every, as_json)
            return
        if not (given or statuses or slurm or batches):
            raise click.UsageError("nothing to explain: give FILES, --status 137, --slurm, --k8s, --core, --batches 117,464,... or --pid N")
        from matrix.explain import batches as of_batches
        from matrix.explain import page

        pattern = of_batches.find(batches, accum, epoch_steps) if batches else None
        found = _remains(given, statuses, slurm, was_pid) if given or statuses or slurm else None
        if as_json:
            click.echo(page.to_json(found, pattern))
        else:
            parts = [of_batches.words(pattern)] if pattern else []
            click.echo("\n\n".join(parts + ([page.text(found)] if found else [])))


def _remains(given: list[str], statuses: tuple[str, ...], slurm: tuple[str, ...], was_pid: int | None) -> Explained:
    from matrix.explain import recognise, recording, remains, sources
    from matrix.explain import slurm as of_slurm
    from matrix.explain import statuses as of_status
    from matrix.explain.part import Part, joined

    try:
        parts = [of_status.given(words) for words in statuses]
        states = {words: of_slurm.from_state(words) for words in slurm}
        parts += [part for part in states.values() if part is not None]
        files = [words for words, part in states.items() if part is None]
        if unknown := next((words for words in files if words != "-" and not Path(words).exists()), None):
            fail(f"--slurm {unknown}: neither a file nor a state that is known: {', '.join(of_slurm.STATES)}", BAD_INPUT)
        given += files
        folders = [words for words in given if recording.is_one(Path(words))]
        parts += [recording.read(Path(words)) for words in folders]
        given = [words for words in given if words not in folders]
        with sources.opened(tuple(given)) as opened:
            parts += [recognise.read_all(opened)] if opened else []
            return remains.explain(joined([Part(main=was_pid), *parts]))
    except (sources.Unreadable, of_status.NoStatus) as problem:
        fail(str(problem), BAD_INPUT)


def _autopsy(pid: int, looks: int, every: float, as_json: bool) -> None:
    from matrix.explain import autopsy, autopsy_folder
    from matrix.explain.autopsy_page import text, to_json
    from matrix.packages import pack, write_report

    autopsy_folder.must_be_writable()
    try:
        found = autopsy.examine(pid, looks=looks, every_s=every)
    except autopsy.CannotLook as problem:
        fail(str(problem), BAD_INPUT)
    where: Path = autopsy_folder.write(found)
    write_report(where)
    package = pack(where, "minimal", cores=False, out=None, max_mib=100, dry_run=False)
    click.echo(to_json(found, where, package) if as_json else text(found, where, package))
