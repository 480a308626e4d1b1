"""`drawbridge migrate`: what a Git tree has to change to move from device plugins to DRA drivers, as a plan and as commits;
and whether the drivers of nodes serve pods.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from analysis.errors import Broken
from cli import options
from cli.answers import unread, write
from cli.command import Steps, declare
from cli.configuration import given_configuration
from cli.exits import Exit
from cli.files import InputFiles, without_collection
from cli.output import print_diff
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.loading import Reading
    from analysis.migration import MigrationPlan
    from cli.files import ReadFiles
    from cli.pull_request import BranchState
    from dra.raw import Object

_BRANCH: Final = "move-to-dra"


@declare(
    "migrate",
    cls=Steps,
    no_args_is_help=False,
    examples=(
        "drawbridge migrate plan > migration.yaml",
        "drawbridge migrate plan deploy/ --inventory fleet.yaml -o markdown",
    ),
)
def command() -> None:
    """Move a Git tree from device plugins to DRA drivers."""


def _step(name: str, *examples: str) -> Callable[[Callable[..., Exit]], None]:
    """Declare a step of the command."""

    def add(function: Callable[..., Exit]) -> None:
        assert isinstance(command, Steps)
        command.add_command(declare("migrate", examples=examples)(function), name)

    return add


def _of_tree() -> options.Decorator:
    """Add the tree, and what a plan of it reads."""
    excluded = "Files to skip, as a pattern of .gitignore. May be repeated."
    return options.all_of(
        (
            click.argument("tree", default=".", metavar="[TREE]", type=click.Path(exists=True, file_okay=False)),
            options.option("--exclude", excluded, metavar="PATTERN", multiple=True, called="excluded"),
            options.inventory("It tells sharing, devices and the version. "),
            options.config(),
        )
    )


def is_terminal() -> bool:
    """Return whether a person reads the output."""
    return sys.stdout.isatty()


@_step("plan", "drawbridge migrate plan > migration.yaml", "drawbridge migrate plan --check migration.yaml")
@_of_tree()
@options.option("--check", "Compare a plan with the tree; exit code 1: they differ.", metavar="FILE")
@options.output("yaml", "text", "json", "markdown", default=None)
def _plan(*, check: str, output: str | None, **read: Any) -> Exit:
    """Print the plan of a tree.

    A terminal gets `text`, a file or a pipe `yaml`. The plan begins at what Flux and Argo CD build, or else at the kustomizations, and lists what they do not reach under `skipped`. The YAML file has
    decisions for a person: whether a plugin goes, how pods share devices, and what happens to each consumer. It changes nothing.
    """
    from analysis.migration import report
    from cluster.manifests import dump

    output = output or ("text" if is_terminal() else "yaml")
    plan, _, _ = _read_tree(**read)
    if check:
        before = _read_plan(check)
        differences = list(report.changes(before, _as_document(plan)))
        is_done = bool(before.get("families")) and plan.is_done
        for line in [report.done(before)] if is_done else differences or ["the plan is still true"]:
            click.echo(line)
        return Exit.REFUSED if differences and not is_done else Exit.FINE
    if output == "yaml":
        click.echo(dump([_as_document(plan)]), nl=False)
    else:
        write(output, lambda: report.report(plan), lambda: _as_document(plan))
    return Exit.FINE


@_step("pr", "drawbridge migrate pr --dry-run -o diff", "drawbridge migrate pr --plan migration.yaml")
@_of_tree()
@options.option("--plan", "The plan to follow. Default: the plan of the tree.", metavar="FILE", called="plan_file")
@options.option("--branch", "The new branch.", metavar="NAME", default=_BRANCH)
@options.option(
    "--charts",
    "A directory with packed or unpacked charts, to render and compare changed releases. [default: helm's cache]",
    metavar="DIR",
)
@options.option("--dry-run", "Print what the branch would have; make none.")
@options.output("text", "diff", "json", default="text")
def _pr(*, plan_file: str, branch: str, charts: str, dry_run: bool, output: str, **read: Any) -> Exit:
    """Write the commits of a plan.

    They are `prepare`, `switch` and `tidy`, on a new branch. The working tree and the index do not change. Exit code 1: a plugin stays, because something would lose its devices.
    """
    import msgspec

    from analysis.migration import commits, rendering, report
    from cli import pull_request
    from cli.branch import NewCommit, Repository
    from cli.charts import ChartFolder, compare_charts
    from cli.compared import compare_builds
    from cli.edited import diff

    if charts and not Path(charts).is_dir():
        raise click.UsageError(f"--charts {charts!r} is not a directory")
    repository = Repository(read["tree"])
    plan, reading, files = _read_tree(**read)
    if plan_file:
        plan = _decided(plan, plan_file)
    documents, tree = files.everything, files.tree
    assert tree is not None
    plan, steps = commits.without_failed_edits(documents, tree, plan, reading.state)
    done = Exit.REFUSED if plan.staying else Exit.FINE
    if steps and not dry_run and (problems := unread()):
        unread_places = f"{count_of(len(problems), 'place')} of the tree cannot be read and may have consumers"
        raise Broken(f"no branch was made: {unread_places}", "mend the files, or leave them out with --exclude PATTERN")
    written = pull_request.write_steps(steps, documents, repository)
    changed = [*rendering.changed_releases(steps, documents, tree, plan, _nodes(files))]
    uncompared = compare_charts(changed, ChartFolder(charts))
    not_rendered = [
        *commits.uncompared_charts(steps, documents, tree, uncompared),
        *(compare_builds(steps, written, documents, repository) if steps else ()),
    ]
    messages = [commits.message(step, steps, plan, not_rendered) for step in steps]
    names: Sequence[str] = [""] * len(steps)
    branch_state: BranchState = "dry run" if steps else "nothing to change"
    if steps and not dry_run:
        new_commits = [NewCommit(text, of_step.contents) for text, of_step in zip(messages, written, strict=True)]
        names, existed = repository.write_branch(branch, new_commits)
        branch_state = "existed" if existed else "created"
    if output == "diff":
        print_diff("".join(line for of_step in written for edited in of_step.edits.values() for line in diff(edited)))
        return done
    answer = pull_request.PullRequest(
        branch=branch,
        base=repository.branch,
        state=branch_state,
        commits=list(map(pull_request.commit_of, steps, names, messages, written)),
        stays=plan.why_staying,
        not_moved=commits.not_moved(steps, plan),
        not_rendered=not_rendered,
    )
    moved = [consumer for step in steps for consumer in step.moved]
    first = report.first_lines(plan, moved) if plan.families else []
    write(output, lambda: pull_request.report(answer, first, report.summary(plan)), lambda: msgspec.to_builtins(answer))
    return done


@_step("accept", "drawbridge migrate accept gpu-1 gpu-2", "drawbridge migrate accept gpu-1 -o json")
@click.argument("nodes", nargs=-1, metavar="NODE...")
@options.option(
    "--image",
    "An image with sh, echo, env, readlink, sed and sleep. [default: busybox from Docker Hub, by digest]",
    metavar="IMAGE",
)
@options.option(
    "--namespace", "An existing namespace for the pods. [default: a new one, deleted at the end]", metavar="NAME"
)
@options.cluster_access()
@options.config()
@options.output("text", "json", "markdown", default="text")
def _accept(*, nodes: tuple[str, ...], config: str, output: str, **access: Any) -> Exit:
    """Check the drivers of nodes.

    Run it before workloads move to nodes, and after updates of drivers. For one device of each kind it creates a claim and a pod, and deletes them again. Exit code 1: a check failed.
    """
    from analysis.migration import accept
    from cli.accept import accept_nodes
    from dra.wire import builtins

    acceptance = accept_nodes(nodes, given=given_configuration(config), **access)
    write(output, lambda: accept.report(acceptance), lambda: builtins(acceptance))
    return Exit.FINE if acceptance.passed else Exit.REFUSED


@_step("status", "drawbridge migrate status", "drawbridge migrate status --context home --accepted accepted.json")
@_of_tree()
@options.option("--branch", "The branch of the move.", metavar="NAME", default=_BRANCH)
@options.option(
    "--accepted",
    "The output of `migrate accept -o json`. May be repeated; later files take precedence.",
    metavar="FILE",
    multiple=True,
)
@options.cluster_access()
@options.output("text", "json", "markdown", default="text")
def _status(*, branch: str, accepted: tuple[str, ...], kubeconfig: str, context: str, output: str, **read: Any) -> Exit:
    """Print how far a move is, by driver and node.

    It reads the tree and its branches, and nodes from `--inventory`, or from a cluster with `--context` or `--kubeconfig`. Exit code 1: the move is not done.
    """
    from analysis.gitops import releases
    from analysis.loading import Needs
    from analysis.migration import status
    from cli.accept import KINDS, PAGE, read_acceptance
    from cli.branch import unmerged_branch
    from cli.loading import read_live
    from dra.wire import builtins

    plan, reading, files = _read_tree(**read)
    assert files.tree is not None
    if kubeconfig or context:
        reading = read_live(kubeconfig, context, Needs(KINDS, PAGE), given=given_configuration(read["config"]))
    nodes = [*status.node_progress(reading.stock, reading.state, [read_acceptance(file) for file in accepted])]
    built = [release for release in releases(files.everything, files.tree) if release.number in files.tree.reached]
    answer = status.status_of(plan, built, unmerged_branch(read["tree"], branch), nodes)
    write(output, lambda: status.report(answer), lambda: builtins(answer))
    return Exit.FINE if answer.done else Exit.REFUSED


def _read_tree(
    *, tree: str, excluded: tuple[str, ...], inventory: tuple[str, ...], config: str
) -> tuple[MigrationPlan, Reading, ReadFiles]:
    """Return the plan of a tree, and what it was made from."""
    from analysis.migration import make_plan
    from cli.loading import read_whole

    input_files = InputFiles(paths=(tree,), excluded=excluded, inventory=inventory)
    reading, files = read_whole(input_files, given_configuration(config), None)
    assert files.tree is not None
    with without_collection():
        plan = make_plan(files.everything, files.tree, reading.state, files.skipped, _nodes(files))
    return plan, reading, files


def _nodes(files: ReadFiles) -> list[Object]:
    """Return the nodes of the snapshot."""
    return [document.object for document in files.inventory if document.object.get("kind") == "Node"]


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

    from analysis.migration import MigrationPlan, report
    from cluster.manifests import InputProblem, ManifestError

    document = _read_plan(file)
    if differences := list(report.changes(document, _as_document(plan))):
        remedy = "write the plan again: drawbridge migrate plan > FILE"
        raise ManifestError(InputProblem(file, f"the tree changed: {line}", remedy) for line in differences)
    try:
        return report.with_decisions(plan, msgspec.convert(document, MigrationPlan))
    except msgspec.ValidationError as error:
        raise Broken(f"{file}: {error}", "take one of the values that docs/commands.md names") from error
