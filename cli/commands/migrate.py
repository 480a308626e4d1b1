"""`drawbridge migrate plan`: what a Git tree has to change to move from device plugins to DRA drivers."""

from __future__ import annotations

from pathlib import Path

import click

from analysis.errors import Broken
from cli import options
from cli.answers import write
from cli.command import declare
from cli.configuration import given_configuration
from cli.exits import Exit
from cli.files import InputFiles, without_collection


@declare(
    "migrate", examples=("drawbridge migrate plan > migration.yaml", "drawbridge migrate plan deploy/ -o markdown")
)
@click.argument("step", type=click.Choice(("plan",)))
@click.argument("tree", default=".", metavar="[TREE]", type=click.Path(exists=True, file_okay=False))
@options.option("--check", "Compare a plan with the tree; exit code 1: they differ.", metavar="FILE")
@options.option(
    "--exclude",
    "Files to skip, as a pattern of .gitignore. May be repeated.",
    metavar="PATTERN",
    multiple=True,
    called="excluded",
)
@options.config()
@options.output("yaml", "text", "json", "markdown", default="yaml")
def command(*, step: str, tree: str, check: str, excluded: tuple[str, ...], config: str, output: str) -> Exit:
    """Plan the move of a Git tree from device plugins to DRA drivers.

    The plan begins at what Flux and Argo CD build, or else at the kustomizations, and lists what they do not reach under `skipped`. It is a
    YAML file with decisions for a person: how pods share devices, and what happens to each consumer. The command changes nothing.
    """
    del step  # there is one
    import msgspec

    from analysis.migration import changes, make_plan, report
    from cli.loading import read_whole
    from cluster.manifests import dump

    reading, files = read_whole(InputFiles(paths=(tree,), excluded=excluded), given_configuration(config), None)
    assert files.tree is not None
    with without_collection():
        plan = make_plan(files.everything, files.tree, reading.state, files.skipped)
    document = msgspec.json.decode(msgspec.json.encode(plan))
    if check:
        differences = list(changes(_read_plan(check), document))
        for line in differences:
            click.echo(line)
        if not differences:
            click.echo("the plan is still true")
        return Exit.REFUSED if differences else Exit.FINE
    if output == "yaml":
        click.echo(dump([document]), nl=False)
    else:
        write(output, lambda: report(plan), lambda: document)
    return Exit.FINE


def _read_plan(file: str) -> dict[str, object]:
    from cluster.manifests import read

    if not Path(file).is_file():
        raise Broken(f"{file}: there is no such file", "write a plan first: drawbridge migrate plan > FILE")
    documents = read([file])
    if len(documents) != 1 or documents[0].object.get("kind") != "MigrationPlan":
        raise Broken(f"{file}: this is no plan", "write one: drawbridge migrate plan > FILE")
    return documents[0].object
