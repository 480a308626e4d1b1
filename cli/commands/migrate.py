"""`drawbridge migrate`: what a Git tree has to change to move from device plugins to DRA drivers, as a plan and as commits;
and whether the drivers of nodes serve pods.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.errors import Broken
from cli import options
from cli.answers import unread, write
from cli.command import declare
from cli.configuration import given_configuration
from cli.exits import Exit
from cli.files import InputFiles, without_collection
from cli.output import print_diff
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.migration import MigrationPlan
    from cli.branch import Repository
    from cli.files import ReadFiles
    from cli.pull_request import BranchState
    from dra.raw import Object
    from webhook.state import State

# The output formats of each step, with its default first, and its own options.
_FORMATS: Final = {
    "plan": ("yaml", "text", "json", "markdown"),
    "pr": ("text", "diff", "json"),
    "accept": ("text", "json", "markdown"),
}
_OPTIONS: Final = {
    "plan": ("check",),
    "pr": ("plan_file", "branch", "charts", "dry_run"),
    "accept": ("image", "namespace", "kubeconfig", "context"),
}
_BRANCH: Final = "move-to-dra"


@declare(
    "migrate",
    examples=(
        "drawbridge migrate plan > migration.yaml",
        "drawbridge migrate plan deploy/ --inventory fleet.yaml -o markdown",
    ),
)
@click.argument("step", type=click.Choice(tuple(_FORMATS)))
@click.argument("places", nargs=-1, metavar="[TREE|NODE...]")
@options.option("--check", "plan: compare a plan with the tree; exit code 1: they differ.", metavar="FILE")
@options.option("--plan", "pr: the plan to follow. Default: the plan of the tree.", metavar="FILE", called="plan_file")
@options.option("--branch", f"pr: the new branch. [default: {_BRANCH}]", metavar="NAME")
@options.option(
    "--charts",
    "pr: a directory with packed or unpacked charts, to render and compare changed releases. [default: helm's cache]",
    metavar="DIR",
)
@options.option("--dry-run", "pr: print what the branch would have; make none.")
@options.option(
    "--exclude",
    "Files to skip, as a pattern of .gitignore. May be repeated.",
    metavar="PATTERN",
    multiple=True,
    called="excluded",
)
@options.option(
    "--image",
    "accept: an image with sh, echo, env, readlink, sed and sleep. [default: busybox from Docker Hub, by digest]",
    metavar="IMAGE",
)
@options.option(
    "--namespace",
    "accept: an existing namespace for the pods. [default: a new one, deleted at the end]",
    metavar="NAME",
)
@options.cluster_access()
@options.inventory("It tells sharing, devices and the version. ")
@options.config()
@options.output("yaml", "text", "json", "markdown", "diff", default=None)
def command(
    *,
    step: str,
    places: tuple[str, ...],
    check: str,
    plan_file: str,
    branch: str,
    charts: str,
    dry_run: bool,
    excluded: tuple[str, ...],
    image: str,
    namespace: str,
    kubeconfig: str,
    context: str,
    inventory: tuple[str, ...],
    config: str,
    output: str | None,
) -> Exit:
    """Move a Git tree from device plugins to DRA drivers.

    `plan` begins at what Flux and Argo CD build, or else at the kustomizations, and lists what they do not reach under `skipped`. It is a
    YAML file with decisions for a person: whether a plugin goes, how pods share devices, and what happens to each consumer. It changes nothing.

    `pr` writes the commits of a plan on a new branch: `prepare`, `switch` and `tidy`. The working tree and the index do not change. Exit code
    1: a plugin stays, because something would lose its devices.

    `accept` checks nodes of a cluster before workloads move to them, and after updates of drivers. For one device of each kind it creates a
    claim and a pod, and deletes them again. Exit code 1: a check failed.
    """
    _refuse_options_of_others(step)
    shown = output or _FORMATS[step][0]
    if step == "accept":
        from analysis.migration import accept
        from cli.accept import accept_nodes
        from dra.wire import builtins

        given = given_configuration(config)
        acceptance = accept_nodes(
            places, kubeconfig=kubeconfig, context=context, namespace=namespace, image=image, given=given
        )
        write(shown, lambda: accept.report(acceptance), lambda: builtins(acceptance))
        return Exit.FINE if acceptance.passed else Exit.REFUSED
    tree = _tree_of(places)
    if charts and not Path(charts).is_dir():
        raise click.UsageError(f"--charts {charts!r} is not a directory")
    repository = None
    if step == "pr":
        from cli.branch import Repository

        repository = Repository(tree)
    from analysis.migration import make_plan
    from cli.loading import read_whole

    input_files = InputFiles(paths=(tree,), excluded=excluded, inventory=inventory)
    reading, files = read_whole(input_files, given_configuration(config), None)
    assert files.tree is not None
    with without_collection():
        plan = make_plan(files.everything, files.tree, reading.state, files.skipped, _nodes(files))
    if repository is None:
        return _print_plan(plan, check, shown)
    if plan_file:
        plan = _decided(plan, plan_file)
    return _make_pull_request(
        plan, reading.state, files, repository, branch=branch or _BRANCH, charts=charts, shown=shown, dry_run=dry_run
    )


def _nodes(files: ReadFiles) -> list[Object]:
    """Return the nodes of the snapshot."""
    return [document.object for document in files.inventory if document.object.get("kind") == "Node"]


def _refuse_options_of_others(step: str) -> None:
    """Refuse the options and formats of the other step."""
    ctx = click.get_current_context()
    for other in _OPTIONS.keys() - {step}:
        for parameter in ctx.command.params:
            if parameter.name in _OPTIONS[other] and ctx.params[parameter.name]:
                raise click.UsageError(f"{parameter.opts[0]} is an option of `migrate {other}`", ctx)
    if (output := ctx.params["output"]) and output not in _FORMATS[step]:
        raise click.UsageError(f"`migrate {step}` has no output format {output}: {', '.join(_FORMATS[step])}", ctx)


def _tree_of(places: Sequence[str]) -> str:
    """Return the only folder among the arguments, or the current one."""
    if len(places) > 1:
        raise click.UsageError("name one TREE")
    [tree] = places or (".",)
    if not Path(tree).is_dir():
        raise click.UsageError(f"TREE {tree!r} is not a directory")
    return tree


def _print_plan(plan: MigrationPlan, check: str, shown: str) -> Exit:
    from analysis.migration import changes, report
    from cluster.manifests import dump

    if check:
        differences = list(changes(_read_plan(check), _as_document(plan)))
        for line in differences:
            click.echo(line)
        if not differences:
            click.echo("the plan is still true")
        return Exit.REFUSED if differences else Exit.FINE
    if shown == "yaml":
        click.echo(dump([_as_document(plan)]), nl=False)
    else:
        write(shown, lambda: report(plan), lambda: _as_document(plan))
    return Exit.FINE


def _as_document(plan: MigrationPlan) -> dict[str, object]:
    import msgspec

    document: dict[str, object] = msgspec.json.decode(msgspec.json.encode(plan))
    return document


def _read_plan(file: str) -> dict[str, object]:
    from cluster.manifests import read

    if not Path(file).is_file():
        raise Broken(f"{file}: there is no such file", "write a plan first: drawbridge migrate plan > FILE")
    documents = read([file])
    if len(documents) != 1 or documents[0].object.get("kind") != "MigrationPlan":
        raise Broken(f"{file}: this is no plan", "write one: drawbridge migrate plan > FILE")
    return documents[0].object


def _decided(plan: MigrationPlan, file: str) -> MigrationPlan:
    """Return the plan of the tree with the decisions of a file. Raises ManifestError if the file's plan is one of another tree."""
    import msgspec

    from analysis.migration import MigrationPlan, changes, with_decisions
    from cluster.manifests import InputProblem, ManifestError

    document = _read_plan(file)
    if differences := list(changes(document, _as_document(plan))):
        remedy = "write the plan again: drawbridge migrate plan > FILE"
        raise ManifestError(InputProblem(file, f"the tree changed: {line}", remedy) for line in differences)
    try:
        return with_decisions(plan, msgspec.convert(document, MigrationPlan))
    except msgspec.ValidationError as error:
        raise Broken(f"{file}: {error}", "take one of the values that docs/commands.md names") from error


def _make_pull_request(
    plan: MigrationPlan,
    state: State,
    files: ReadFiles,
    repository: Repository,
    *,
    branch: str,
    charts: str,
    shown: str,
    dry_run: bool,
) -> Exit:
    import msgspec

    from analysis.migration import (
        changed_releases,
        message,
        not_moved,
        pull_request,
        summary,
        uncompared_charts,
    )
    from cli.branch import Commit
    from cli.charts import ChartFolder, compare_charts
    from cli.compared import compare_builds
    from cli.edited import diff
    from cli.pull_request import PullRequest, commit_of, report, write_steps

    documents, tree = files.everything, files.tree
    assert tree is not None
    done = Exit.REFUSED if plan.staying else Exit.FINE
    steps = pull_request(documents, tree, plan, state)
    if steps and not dry_run and (problems := unread()):
        unread_places = f"{count_of(len(problems), 'place')} of the tree cannot be read and may have consumers"
        raise Broken(f"no branch was made: {unread_places}", "mend the files, or leave them out with --exclude PATTERN")
    written = write_steps(steps, documents, repository)
    changed = [*changed_releases(steps, documents, tree, plan, _nodes(files))]
    uncompared = compare_charts(changed, ChartFolder(charts))
    not_rendered = [
        *uncompared_charts(steps, documents, tree, uncompared),
        *(compare_builds(steps, written, documents, repository) if steps else ()),
    ]
    messages = [message(step, steps, plan, not_rendered) for step in steps]
    names: Sequence[str] = [""] * len(steps)
    branch_state: BranchState = "dry run" if steps else "nothing to change"
    if steps and not dry_run:
        commits = [Commit(text, of_step.contents) for text, of_step in zip(messages, written, strict=True)]
        names, existed = repository.write_branch(branch, commits)
        branch_state = "existed" if existed else "created"
    if shown == "diff":
        print_diff("".join(line for of_step in written for edited in of_step.edits.values() for line in diff(edited)))
        return done
    answer = PullRequest(
        branch=branch,
        base=repository.branch,
        state=branch_state,
        commits=list(map(commit_of, steps, names, messages, written)),
        stays=[
            f"{family.driver}: {reason}"
            for family in plan.staying
            for reason in family.reasons or ("the plan decides so",)
        ],
        not_moved=not_moved(steps, plan),
        not_rendered=not_rendered,
    )
    write(shown, lambda: report(answer, summary(plan)), lambda: msgspec.to_builtins(answer))
    return done
