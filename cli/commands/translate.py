"""`drawbridge translate`: rewrites manifests for device plugins into manifests with claims.

It uses the webhook's code, so with the same configuration and inventory it translates as the webhook does. Unlike the webhook it
rewrites the pod templates of workloads, and puts the claim templates into the output and not into an annotation of the pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analysis.configuration import server_named
from analysis.errors import Broken
from cli import options
from cli.answers import conclude, report_problems, write, write_json
from cli.applied import print_assumed, warn_no_classes
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from cli.output import print_diff, print_lines, print_to_stderr, quiet, warn
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cli.files import InputFiles, ReadFiles
    from cli.in_place import FileEdits, Result
    from cluster.manifests import Document

# Forms of output for which all objects of the input are translated, not only those that look like manifests.
_FORMS_OF_ALL_OBJECTS = ("yaml", "json", "patch")


def _action(name: str, help: str) -> options.Decorator:  # noqa: A002  click's own word
    """Declare an option that says what the command does instead of printing; the last one counts."""
    return click.option(name, "action", flag_value=name, default=None, help=help)


@declare(
    "translate",
    examples=(
        "drawbridge translate -f pod.yaml -o diff",
        "drawbridge translate -f deploy/ --inventory fleet.yaml --in-place",
    ),
)
@options.files()
@options.namespaced("The namespace of objects without one; objects of other namespaces are not translated.")
@options.inventory()
@options.config()
@options.mode_option()
@options.option("--all-kinds", "Look for pod templates in unknown kinds, too.")
@options.server()
@_action("--in-place", "Edit the files: only the lines that change; comments and order stay.")
@_action("--check", "List the files that --in-place would edit, with exit code 1 if there are any; write none.")
@_action("--undo", "Revert --in-place in these files; later edits stay.")
@options.output("yaml", "json", "diff", "patch", "report", "markdown", "sarif", "github", "junit", default=None)
def command(
    *,
    files: InputFiles,
    namespace: str,
    config: str,
    mode: str | None,
    all_kinds: bool,
    kubernetes: str,
    feature_gates: str,
    action: str | None,
    output: str | None,
) -> Exit:
    """Rewrite pods and workloads for device plugins into ones with ResourceClaims. Without -o, --in-place and --check, print YAML.

    All other objects are printed unchanged, in order. An object that is refused is printed unchanged, and the exit code is 1.
    """
    if not files:
        raise Broken(
            "nothing to translate", "give manifests with -f FILE, -f DIR or -f -; for a cluster use `drawbridge survey`"
        )
    if action == "--undo":
        return _undo(files.paths)
    from cli import translated
    from cli.in_place import FileEdits
    from cli.loading import read_whole

    shown = output or ("" if action else "yaml")
    reading, input_files = read_whole(files, given_configuration(config), server_named(kubernetes, feature_gates))
    documents = _documents_of(input_files, files.paths, shown, is_edited=bool(action))
    report_configuration(reading.in_force, mode)
    translator, results = translated.translate(
        reading, documents, input_files.inventory, mode=mode, namespace=namespace, rewrites_unknown=all_kinds
    )
    edits = FileEdits()
    if action or shown == "diff":
        edits = translated.edit(translator, results, input_files, files.paths)
    _print(results, shown, edits, {"configuration": reading.in_force.described(mode)})
    if action:
        _write_into(edits, dry_run=action == "--check", err=bool(shown))
    for problem in () if action else (*edits.problems, *edits.not_compared):
        if problem.file != "-":
            warn(str(problem))
    is_changed = edits.edited or any(result.translation.changed for result in results)
    if shown in ("diff", "yaml") and results and not is_changed:
        warn(translated.why_unchanged(results))
    _warn_of_what_stays(documents, input_files.inventory, results, all_kinds=all_kinds)
    if action == "--in-place" or shown in ("yaml", "diff", "patch", ""):
        _print_problems(results)
    is_refused = any(result.translation.refusals for result in results)
    would_change = action == "--check" and edits.edited
    has_no_diff = not action and any(problem.file != "-" for problem in edits.problems)
    return Exit.REFUSED if is_refused or would_change or has_no_diff else Exit.FINE


def _documents_of(files: ReadFiles, paths: Collection[str], shown: str, *, is_edited: bool) -> Sequence[Document]:
    """Return the documents to translate, and warn of those that are skipped."""
    from analysis.skipped import SkippedFile
    from cli.files import warn_of_skipped

    documents, skipped = files.documents, list(files.skipped)
    if not is_edited and shown != "diff":
        parts = [part for part in files.patched if part.key]
        skipped += [SkippedFile(*part.document.place_of(part.pointer)[:2], "", part.key) for part in parts]
    if shown in _FORMS_OF_ALL_OBJECTS and not is_edited:
        documents = files.everything
        # A file of another program is an error if it was named, and skipped if it is in a folder.
        unnamed = {other.file for other in files.others if other.file not in paths}
        report_problems(
            other for other in files.others if other.apparent_kind != "template" and other.file not in unnamed
        )
        skipped = [
            skip if skip.reason in ("template", "assertion") or skip.file in unnamed else skip._replace(reason="")
            for skip in skipped
        ]
    elif is_edited or shown == "diff":  # `translated.edits` reports the lines that request devices
        # The files of a kustomization are edited with what it builds.
        skipped = [skip._replace(key="") for skip in skipped if skip.reason != "patch"]
    warn_of_skipped(skipped)
    return documents


def _warn_of_what_stays(
    documents: Sequence[Document], inventory: Sequence[Document], results: Sequence[Result], *, all_kinds: bool
) -> None:
    """Warn of objects that may request devices and are not translated, and of what is only assumed about keys."""
    from cli.loading import warn_of_misspelt
    from cli.translated import unknown_kinds

    warn_of_misspelt(documents)
    decisions = [decision for result in results for decision in result.translation.decisions]
    warn_no_classes(documents, inventory, decisions)
    print_assumed(decision.key for decision in decisions if decision.meaning_assumed)
    if not all_kinds and (kinds := unknown_kinds(documents)):
        warn(f"pod templates in unknown kinds are not translated: {kinds} (use --all-kinds)")


def _print(results: Sequence[Result], shown: str, edits: FileEdits, configuration: Mapping[str, object]) -> None:
    """Print the translated objects, or what changes, in an output format; "" prints nothing."""
    from cli import translated
    from cluster import manifests

    match shown:
        case "":
            return
        case "yaml":
            objects = [obj for result in results for obj in (*result.templates, result.object)]
            click.echo(manifests.dump(objects), nl=False)
        case "diff":
            for diff in translated.diffs(results, edits):
                print_diff(diff)
        case "patch":  # one JSON Patch for each object that changes, with the templates it needs
            write_json(
                [
                    {"object": result.name, "patch": result.translation.operations, "templates": result.templates}
                    for result in results
                    if result.translation.changed
                ]
            )
        case _:
            write(
                shown,
                lambda: translated.report(results),
                lambda: {**configuration, **translated.as_json(results)},
                findings=lambda: translated.findings(results),
            )


def _print_problems(results: Sequence[Result]) -> None:
    """Print refusals and warnings on stderr, with the file and line of their object."""
    for result in results:
        where = f"{result.document.file}:{result.document.line}"
        for refusal in result.translation.refusals:
            print_to_stderr(f"{where}: error: {result.name}: {refusal}")
        warnings = [*result.translation.warnings, *(str(line) for quota in result.foretold for line in quota.crossed)]
        for warning in () if quiet() else warnings:
            print_to_stderr(f"{where}: warning: {result.name}: {warning}")


def _write_into(edits: FileEdits, *, dry_run: bool, err: bool) -> None:
    """Write the edited files and list them, on stderr if `err`; then report the files that cannot be edited."""
    from cli.undo import write_undoable

    if not dry_run:
        write_undoable(edits.edited)
    verb = "would be edited" if dry_run else "edited"
    lines = [f"{edit.path}: {verb}" for edit in edits.edited]
    problems = [*edits.problems, *edits.not_compared]
    if not lines and not problems:
        lines.append("nothing to edit")
    if not (err and quiet()):
        print_lines(lines, err=err)
    if problems:
        report_problems(problems)
        conclude(f"{count_of(len(edits.edited), 'file')} {verb}, the others not")


def _undo(files: Sequence[str]) -> Exit:
    from cli.undo import restore

    changing, conflicts = restore(files)
    for conflict in conflicts:
        print_to_stderr(f"{conflict.path}:{conflict.line}: error: {conflict.problem}")
    if conflicts:
        return Exit.REFUSED
    print_lines([f"{edit.path}: restored" for edit in changing] or ["nothing to undo"])
    return Exit.FINE
