"""`drawbridge translate`: rewrites manifests for device plugins into manifests with claims.

It uses the webhook's code, so with the same configuration and inventory it translates as the webhook does. Unlike the webhook it
rewrites the pod templates of workloads, and puts the claim templates into the output and not into an annotation of the pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from analysis.applied import print_assumed, warn_no_classes
from analysis.configuration import given_configuration, server_named
from cli import options
from cli.command import declare
from dra.texts import count_of
from rendering.answers import conclude, report_problems, write, write_json
from rendering.exits import Broken, Exit
from rendering.output import print_diff, print_lines, print_to_stderr, quiet, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.edited import Edited, Result
    from cluster.manifests import InputProblem

# Forms of output for which all objects of the input are translated, not only those that look like manifests.
_FORMS_OF_ALL_OBJECTS = ("yaml", "json", "patch")


@declare(
    "translate",
    empty={
        "configuration": {"source": "", "mode": ""},
        "items": [],
        "decisions": [],
        "warnings": [],
        "refusals": [],
        "quotas": [],
    },
    examples=(
        "drawbridge translate -f pod.yaml -o diff",
        "drawbridge translate -f deploy/ --inventory fleet.yaml --in-place",
    ),
)
@options.files(required=False)
@options.namespaced("The namespace of objects without one; objects of other namespaces are not translated.")
@options.inventory()
@options.config()
@options.mode_option()
@options.option("--all-kinds", "Look for pod templates in unknown kinds, too.")
@options.server()
@options.option("--in-place", "Edit the files: only the lines that change; comments and order stay.")
@options.option("--dry-run", "With --in-place: list the files that would change, and write none.")
@options.option("--check", "Like --dry-run, with exit code 1 if a file would change.")
@options.option(
    "--changed",
    "With --in-place, --dry-run or --check, for the files that a commit changes: also edit other files of the same kustomizations, and only warn of files that cannot be edited.",
)
@options.option("--undo", "Revert --in-place in these files; later edits stay.")
@options.output("yaml", "json", "diff", "patch", "report", "markdown", "sarif", "github", "junit", default="yaml")
def command(
    *,
    files: tuple[str, ...],
    namespace: str,
    inventory: tuple[str, ...],
    config: str,
    mode: str | None,
    all_kinds: bool,
    kubernetes: str,
    feature_gates: str,
    in_place: bool,
    dry_run: bool,
    check: bool,
    changed: bool,
    undo: bool,
    output: str,
) -> Exit:
    """Rewrite pods and workloads for device plugins into ones with ResourceClaims.

    All other objects are printed unchanged, in order. An object that is refused is printed unchanged, and the exit code is 1.
    """
    if not files:
        raise Broken(
            "nothing to translate", "give manifests with -f FILE, -f DIR or -f -; for a cluster use `drawbridge survey`"
        )
    if undo:
        return _undo(files, dry_run=dry_run or check)
    from analysis import translated
    from analysis.files import warn_of_skipped
    from analysis.loading import read_whole, warn_of_misspelt
    from cluster import manifests

    dry_run |= check
    writes = in_place or dry_run
    if changed and not writes:
        raise Broken("--changed has no effect on output", "add --in-place, --dry-run or --check")
    reading = read_whole(files, inventory, given_configuration(config), server_named(kubernetes, feature_gates))
    skipped, in_force = list(reading.skipped), reading.in_force
    documents, inventory_documents = reading.files.documents, reading.files.inventory
    everything, unreadable = reading.files.everything, reading.files.others
    if output in _FORMS_OF_ALL_OBJECTS and not writes:
        documents = everything
        report_problems(problem for problem in unreadable if problem.apparent_kind != "template")
        skipped = [skip if skip.reason == "template" else skip._replace(reason="") for skip in skipped]
    elif writes or output == "diff":  # `translated.edits` reports the lines that request devices
        skipped = [skip._replace(key="") for skip in skipped]
    warn_of_skipped(skipped)
    in_force.report(mode)
    translator, results = translated.translate(
        reading,
        documents,
        mode=mode,
        namespace=namespace,
        rewrites_unknown=all_kinds,
    )
    file_edits = translated.FileEdits([], [], set())
    if writes or output == "diff":
        file_edits = translated.edits(
            translator, results, everything, unreadable, files, writes=writes, changed=changed
        )
    asked_for_output = click.get_current_context().get_parameter_source("output") is not ParameterSource.DEFAULT
    shows_result = asked_for_output or not writes
    if shows_result:
        match output:
            case "yaml":
                objects = [obj for result in results for obj in (*result.templates, result.object)]
                click.echo(manifests.dump(objects), nl=False)
            case "diff":
                for diff in translated.diffs(results, file_edits):
                    print_diff(diff)
            case "patch":  # one JSON Patch for each object that changes, with the templates it needs
                changing = [result for result in results if result.translation.changed]
                write_json(
                    [
                        {"object": result.name, "patch": result.translation.operations, "templates": result.templates}
                        for result in changing
                    ]
                )
            case _:
                write(
                    output,
                    lambda: translated.report(results),
                    lambda: {"configuration": in_force.described(mode), **translated.as_json(results)},
                    findings=lambda: translated.findings(results),
                )
    if writes:
        _write_into(file_edits.edited, file_edits.problems, dry_run=dry_run, err=asked_for_output, lenient=changed)
    else:
        for problem in file_edits.problems:
            warn(f"the diff cannot be applied as it is: {problem}")
    is_changed = file_edits.edited or any(result.translation.changed for result in results)
    if shows_result and output in ("diff", "yaml") and results and not is_changed:
        warn(translated.why_unchanged(results))
    warn_of_misspelt(documents)
    decisions = [decision for result in results for decision in result.translation.decisions]
    warn_no_classes(documents, inventory_documents, decisions)
    print_assumed(decision.key for decision in decisions if decision.meaning_assumed)
    if not all_kinds and (kinds := translated.unknown_kinds(documents)):
        warn(f"pod templates in unknown kinds are not translated: {kinds} (use --all-kinds)")
    if in_place or output in ("yaml", "diff", "patch"):
        _print_problems(results)
    would_change = check and any(not edit.problem for edit in file_edits.edited)
    refused = any(result.translation.refusals for result in results) or (file_edits.problems and not writes)
    return Exit.REFUSED if would_change or refused else Exit.FINE


def _print_problems(results: Sequence[Result]) -> None:
    """Print refusals and warnings on stderr, with the file and line of their object."""
    for result in results:
        where = f"{result.document.file}:{result.document.line}"
        for refusal in result.translation.refusals:
            print_to_stderr(f"{where}: error: {result.name}: {refusal}")
        warnings = [*result.translation.warnings, *(str(line) for quota in result.foretold for line in quota.crossed)]
        for warning in () if quiet() else warnings:
            print_to_stderr(f"{where}: warning: {result.name}: {warning}")


def _write_into(
    edited: Sequence[Edited], problems: Sequence[InputProblem], *, dry_run: bool, err: bool, lenient: bool
) -> None:
    """Write the edited files and list them, on stderr if `err`; then report the files that cannot be edited."""
    from analysis.undo import write_undoable
    from cluster.manifests import InputProblem

    remedy = "use the output of -o yaml"
    not_written = [
        InputProblem(edit.path, f"cannot be edited in place: {edit.problem}", remedy, edit.line)
        for edit in edited
        if edit.problem
    ]
    not_written += problems
    changing = [edit for edit in edited if not edit.problem]
    if not dry_run:
        write_undoable(changing)
    verb = "would be edited" if dry_run else "edited"
    lines = [f"{edit.path}: {verb}" for edit in changing]
    if not edited and not problems:
        lines.append("nothing to edit")
    if not (err and quiet()):
        print_lines(lines, err=err)
    if lenient:
        for problem in not_written:
            warn(str(problem))
    elif not_written:
        report_problems(not_written)
        conclude(f"{count_of(len(changing), 'file')} {verb}, the others not")


def _undo(files: Sequence[str], *, dry_run: bool) -> Exit:
    from analysis.undo import restore

    changing, conflicts = restore(files, dry_run=dry_run)
    for conflict in conflicts:
        print_to_stderr(f"{conflict.path}:{conflict.line}: error: {conflict.problem}")
    if conflicts:
        return Exit.REFUSED
    verb = "would be restored" if dry_run else "restored"
    print_lines([f"{edit.path}: {verb}" for edit in changing] or ["nothing to undo"])
    return Exit.FINE
