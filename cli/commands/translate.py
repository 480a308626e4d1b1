"""`drawbridge translate`: rewrites manifests for device plugins into manifests with claims.

It uses the webhook's code, so equal configuration and inventory give equal translations. Unlike the webhook it rewrites the
pod templates of workloads, and puts the claim templates into the output and not on the pod.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from analysis.configuration import (
    configuration_in_force,
    features_of,
    given_configuration,
    in_mode,
    server_named,
)
from analysis.edited import Result
from analysis.state import find_controlled, in_namespace, print_assumed, print_inventory, state_of_files
from cli import contract as inputs
from cli.contract import Broken, Exit
from webhook.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from analysis.configuration import ConfigurationSource
    from analysis.edited import Edited
    from analysis.quota import Foretold
    from cluster.manifests import Document, InputProblem
    from webhook.state import State


_TEMPLATE = "ResourceClaimTemplate"
_CLAIMS = ("ResourceClaim", _TEMPLATE)
_DIGITS = 16
_PASSING_THROUGH = ("yaml", "json", "patch")  # forms that print every object of the input


@inputs.command(
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
@inputs.files(required=False)
@inputs.option("--cluster", "Instead of files, survey the current cluster (`drawbridge survey`).")
@inputs.namespaced("The namespace of objects that name none; objects of other namespaces are not translated.")
@inputs.inventory()
@inputs.config()
@inputs.mode_option()
@inputs.option("--all-kinds", "Look for pod templates in unknown kinds, too.")
@inputs.server()
@inputs.option("--in-place", "Edit the files: only the lines that change; comments and order stay.")
@inputs.option("--dry-run", "With --in-place: list the files that would change, and write none.")
@inputs.option("--check", "Like --dry-run, with exit code 1 if a file would change.")
@inputs.option(
    "--changed",
    "The files are those of a commit: with --in-place, edit the rest of their kustomizations, too; what cannot be edited is a warning.",
)
@inputs.option("--undo", "Revert --in-place in these files; later edits stay.")
@inputs.output("yaml", "json", "diff", "patch", "report", "sarif", "github", "junit", default="yaml")
def command(
    *,
    files: tuple[str, ...],
    cluster: bool,
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
    """Rewrite pods and workloads that ask for device plugins into ones with ResourceClaims.

    All other objects are printed unchanged, in order. An object that is refused is printed unchanged, and the exit code is 1.
    """
    if cluster:
        from cli.commands.survey import FORMS
        from cli.commands.survey import command as survey

        if files:
            raise Broken("-f excludes --cluster", "leave one of them out")
        form = "text" if output in ("yaml", "report") else output
        if form not in FORMS:
            raise Broken(f"-o {output} is not available with --cluster", "see `drawbridge survey --help`")
        code: Exit = click.get_current_context().invoke(survey, config=config or "", namespace=namespace, output=form)
        return code
    if not files:
        raise Broken("nothing to translate", "give manifests with -f FILE, -f DIR or -f -, or use --cluster")
    if undo:
        from analysis.undo import edit_lock

        with edit_lock():
            return _undo(files, dry_run=dry_run or check)
    from analysis.devices import warn_of_misspelt
    from analysis.loading import serves_node
    from analysis.manifest_files import separate_manifests, warn_of_skipped
    from analysis.reading import read_tree
    from webhook.translate import is_unknown_kind, paths

    server = server_named(kubernetes, feature_gates)
    given = given_configuration(config, files, inventory)
    around = inputs.read(inventory, files) if inventory else []
    dry_run |= check
    writes = in_place or dry_run
    if changed and not writes:
        raise Broken("--changed has no effect on output", "add --in-place, --dry-run or --check")
    everything, others = read_tree(files)
    documents, skipped = separate_manifests(everything, others, given=given)
    if not everything and not others and not inputs.unread():
        inputs.warn("the input holds no objects")
    if output in _PASSING_THROUGH and not writes:
        documents = everything
        inputs.report_unread(one for one in others if one.instead != "template")
        skipped = [one if one.reason == "template" else one._replace(reason="") for one in skipped]
    elif writes or output == "diff":  # each of their lines is named
        skipped = [one._replace(key="") for one in skipped]
    warn_of_skipped(skipped)
    in_force = configuration_in_force(given, documents, around)
    in_force.report(mode)
    configuration = in_force.configuration
    placed, elsewhere = in_namespace(documents, namespace)
    none_of_its_own = find_controlled(placed) | {number for number, one in enumerate(placed) if serves_node(one.object)}
    elsewhere |= none_of_its_own
    state = state_of_files(placed, around, configuration, features_of(server, configuration))
    state = in_mode(state, mode)
    foretold: list[Foretold] = []
    if any(one.object.get("kind") == "DeviceQuota" for one in (*documents, *around)):
        from analysis.quota import foretell

        foretold = foretell([one.object for one in placed], [one.object for one in around], state)
    results = list(_translate_all(documents, placed, elsewhere, state, foretold, unknown=all_kinds))

    def translate_each(given: Sequence[Document]) -> list[Result]:
        """Translate objects that kustomize or helm built, each with all of its templates."""
        inside, outside = in_namespace(given, namespace)
        left = outside | {number for number, one in enumerate(inside) if serves_node(one.object)}
        return [
            result
            for number, one in enumerate(given)
            for result in _translate_all(
                [one], [inside[number]], {0} if number in left else (), state, [], unknown=all_kinds
            )
        ]

    edits: list[Edited] = []
    problems: list[InputProblem] = []
    by_object: set[str] = set()
    if writes or output == "diff":
        edits, problems, by_object = _edits(
            results,
            everything,
            others,
            files,
            state=state,
            translate_each=translate_each,
            writes=writes,
            changed=changed,
        )
    wanted = click.get_current_context().get_parameter_source("output") is not ParameterSource.DEFAULT
    if wanted or not writes:
        looked_at = [one for number, one in enumerate(results) if number not in none_of_its_own]
        _print(looked_at if output == "report" else results, output, edits, by_object, in_force.described(mode))
    if writes:
        _write_into(edits, problems, dry_run=dry_run, err=wanted, lenient=changed)
    else:
        for problem in problems:
            inputs.warn(f"the diff cannot be applied as it is: {problem}")
    shows_change = wanted or not writes
    if (
        shows_change
        and output in ("diff", "yaml")
        and results
        and not (edits or any(one.translation.changed for one in results))
    ):
        inputs.warn(_why_unchanged(results))
    warn_of_misspelt(documents)
    print_inventory(documents, around, (one for result in results for one in result.translation.decisions))
    print_assumed(one.key for result in results for one in result.translation.decisions if one.assumed)
    # Unknown kinds with pod templates.
    kinds: Counter[str] = Counter()
    for document in documents:
        obj = document.object
        if not all_kinds and is_unknown_kind(obj) and paths(obj):
            kinds[str(obj.get("kind") or "without a kind")] += 1
    if kinds:
        listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        inputs.warn(f"pod templates in unknown kinds are not translated: {listed} (use --all-kinds)")
    # Refusals and warnings go to stderr, with their place.
    for result in results if in_place or output in ("yaml", "diff", "patch") else ():
        where = f"{result.document.file}:{result.document.line}"
        for refusal in result.translation.refusals:
            inputs.complain(f"{where}: error: {result.name}: {refusal}")
        warnings = [*result.translation.warnings, *(str(line) for one in result.foretold for line in one.crossed)]
        for warning in () if inputs.quiet() else warnings:
            inputs.complain(f"{where}: warning: {result.name}: {warning}")
    would_change = check and any(not one.problem for one in edits)
    refused = any(result.translation.refusals for result in results) or (problems and not writes)
    return Exit.REFUSED if would_change or refused else Exit.FINE


def _translate_all(
    documents: Sequence[Document],
    placed: Sequence[Document],
    elsewhere: Container[int],
    state: State,
    foretold: list[Foretold],
    *,
    unknown: bool,
) -> Iterator[Result]:
    import msgspec

    from cluster.patch import apply_json_patch
    from dra.raw import inside, text
    from webhook.admission import decide_object
    from webhook.claims import template
    from webhook.translate import Verdict, name_of

    # A template is written once in a namespace, and not if the input has it.
    written: set[tuple[str, str]] = set()
    for document in documents:
        metadata = inside(document.object, "metadata")
        if document.object.get("kind") == _TEMPLATE:
            written.add((text(metadata.get("namespace")), text(metadata.get("name"))))
    for number, document in enumerate(documents):
        namespace = text(inside(document.object, "metadata").get("namespace"))
        done = (
            Verdict() if number in elsewhere else decide_object(placed[number].object, state, rewrite_unknown=unknown)
        )
        # The webhook's names are reserved for its own templates. The new name contains a hash of the content, too, so
        # that equal requests share a template and a second run changes nothing.
        operations = msgspec.json.encode(done.operations).decode()
        templates: dict[str, Any] = {}
        for name, spec in done.templates.items():
            free = f"{spec['spec']['devices']['requests'][0]['name']}-{name.removeprefix(PREFIX)[:_DIGITS]}"
            operations = operations.replace(
                f'"resourceClaimTemplateName":"{name}"', f'"resourceClaimTemplateName":"{free}"'
            )
            templates[free] = spec
        done = msgspec.structs.replace(done, operations=tuple(msgspec.json.decode(operations)), templates=templates)
        new = [name for name in done.templates if (namespace, name) not in written]
        written.update((namespace, name) for name in new)
        made = [template.object_of(name, templates[name], namespace) for name in new]
        for one in made:  # without the label by which the webhook's controller finds and deletes its templates
            del one["metadata"]["labels"]
        yield Result(
            name_of(placed[number].object),
            document,
            done,
            apply_json_patch(document.object, done.operations) if done.changed else document.object,
            tuple(made),
            tuple(one for one in foretold if one.number == number),
        )


def _edits(
    results: list[Result],
    everything: Sequence[Document],
    others: Sequence[InputProblem],
    files: Sequence[str],
    *,
    state: State,
    translate_each: Callable[[Sequence[Document]], list[Result]],
    writes: bool,
    changed: bool,
) -> tuple[list[Edited], list[InputProblem], set[str]]:
    """Edit the files of kustomizations so that their builds stay right, and each other file by itself.

    Return the edits, why an edit of a kustomization is not right (such an edit is returned only for people, not to be written), and
    the files of such a kustomization that have no edit.
    """
    from analysis.edited import edit_files, without_record
    from analysis.trees import Trees, with_own_templates
    from cluster.manifests import chart_of
    from webhook.translate import keys_of

    named = [name for name in files if Path(name).exists()]
    trees = Trees(everything, [one.file for one in others], named, keys_of(state.configuration), changed=changed)
    for line in trees.left_to_charts(translate_each):
        inputs.warn(str(line))
    plain = [one for one in results if os.path.realpath(one.document.file) not in trees.files]
    plain = [one for one in plain if not chart_of(one.document.file)]
    # A file that is also behind a link is edited once.
    names: dict[str, str] = {}
    plain = [
        one
        for one in plain
        if names.setdefault(os.path.realpath(one.document.file), one.document.file) == one.document.file
    ]
    changing = translate_each([one.document for one in plain if one.translation.changed])
    edits = edit_files(with_own_templates(changing, [one.document for one in plain]))
    problems: list[InputProblem] = []
    by_object: set[str] = set()
    for folders, used in trees.groups:
        plan = trees.plan(folders, used, lambda given: [without_record(one) for one in translate_each(given)])
        unnamed = [] if changed else plan.unnamed
        problems += plan.problems
        if writes:
            problems += unnamed
        elif not plan.problems:
            for one in unnamed:
                inputs.warn(f"{one}; this diff has all of them")
        if not (writes and (plan.problems or unnamed)):
            edits += plan.edited
        if plan.problems:
            by_object |= used - {os.path.realpath(one.path) for one in plan.edited}
    return edits, problems, by_object


def _print(
    results: list[Result],
    output: str,
    edits: list[Edited],
    by_object: Container[str],
    configuration: ConfigurationSource,
) -> None:
    from cluster import manifests

    objects = [obj for result in results for obj in (*result.templates, result.object)]
    match output:
        case "yaml":
            click.echo(manifests.dump(objects), nl=False)
        case "json":
            quotas = [
                {
                    "object": result.name,
                    "path": one.path,
                    "replicas": one.replicas,
                    "replicasLeft": one.passing,
                    "lines": [{**line.facts(), "exceeded": line.exceeded} for line in one.lines],
                }
                for result in results
                for one in result.foretold
            ]
            answer = {
                "configuration": configuration,
                "items": objects,
                "decisions": [one for result in results for one in result.translation.decisions],
                "warnings": [f"{result.name}: {text}" for result in results for text in result.translation.warnings],
                "refusals": [f"{result.name}: {text}" for result in results for text in result.translation.refusals],
                "quotas": quotas,
            }
            inputs.write_json(answer)
        case "patch":
            # One JSON Patch for each object that changes, with the templates it needs.
            patches = [
                {"object": one.name, "patch": one.translation.operations, "templates": one.templates}
                for one in results
                if one.translation.changed
            ]
            inputs.write_json(patches)
        case "diff":
            _print_diff(results, edits, by_object)
        case "report":
            _print_report(results)
        case "sarif" | "github" | "junit":
            # Findings, with those of quotas.
            from analysis.check import findings_of_decisions, locate
            from analysis.quota import findings_of_quotas
            from dra.validation import name
            from rendering import formats

            checked: list[formats.ObjectFindings] = []
            for result in results:
                document, obj = result.document, result.document.object
                found = findings_of_decisions(obj, result.translation.decisions)
                found += [finding for one in result.foretold for finding in findings_of_quotas(one, obj)]
                checked.append(formats.ObjectFindings(name(obj), document.place_of("")[0], locate(document, found)))
            inputs.write(output, lambda: formats.report("translate", checked, ""), dict, findings=lambda: checked)


def _print_diff(results: list[Result], edits: list[Edited], by_object: Container[str]) -> None:
    """Print a diff that git applies; for a file that cannot be edited, a diff of its objects for people.

    `by_object` are the files that no edit is for, because their kustomization cannot be edited.
    """
    import difflib

    from analysis.edited import diff
    from cluster.manifests import dump

    unedited = {one.path for one in edits if one.problem}
    for one in edits:
        if not one.problem:
            inputs.print_diff("".join(diff(one)))
        elif one.path != "-":
            inputs.warn(f"{one.path}:{one.line}: {one.problem}: git cannot apply this diff of its objects")
    for result in results:
        file = result.document.file
        if result.translation.changed and (file in unedited or os.path.realpath(file) in by_object):
            before = dump([result.document.object]).splitlines(keepends=True)
            after = dump([*result.templates, result.object]).splitlines(keepends=True)
            changes = difflib.unified_diff(before, after, f"a/{result.name}", f"b/{result.name}")
            inputs.print_diff("".join(changes))


def _why_unchanged(results: list[Result]) -> str:
    """Return the reason why no object changes."""
    objects = inputs.count_of(len(results), "object")
    if asking := sum(map(_requests, results)):
        return f"nothing changes: devices are requested in {asking:,} of {objects}; `-o report` gives each reason"
    return f"nothing changes: {objects} read, and none requests devices by a key of a device plugin"


def _requests(result: Result) -> bool:
    """Say whether there is a decision about more than where pods may run: a node selector requests nothing."""
    from dra.raw import inside
    from webhook.translate import at, paths

    obj = result.document.object
    selectors = {key for path in paths(obj) for key in inside(at(obj, path), "spec", "nodeSelector")}
    return any(one.container or one.code or one.key not in selectors for one in result.translation.decisions)


def _print_report(results: list[Result]) -> None:
    """Print the decision about each key, for people."""
    from webhook.refusals import Denial

    touched = [result.translation for result in results if _requests(result)]
    for result in results:
        done = result.translation
        # Warnings about a key stand beside it already.
        keyed = [decision for decision in done.decisions if decision.detail]
        warnings = [
            text
            for text in map(str, done.warnings)
            if not any(one.detail in text or text.rpartition(f"{one.key}: ")[2] in one.detail for one in keyed)
        ]
        if not (done.decisions or result.foretold or warnings):
            continue
        lines = [f"{result.name}  ({result.document.file}:{result.document.line})"]
        whole = "claim" if result.object.get("kind") in _CLAIMS else "pod"
        for decision in done.decisions:
            where = f"{decision.container or whole}: {decision.key}" if decision.key else decision.container or whole
            basis = f" [{decision.basis}]" if decision.basis else ""
            detail = str(Denial(decision.code, decision.reason, decision.remedy)) if decision.code else decision.reason
            detail = "; ".join(filter(None, (detail, decision.stays and f"at the webhook: {decision.stays}")))
            lines.append(f"  {decision.outcome:<12} {where}{'  ' + detail if detail else ''}{basis}")
        values = [one["value"] for one in done.operations if "/spec/tolerations" in one["path"]]
        added = [one for value in values for one in (value if isinstance(value, list) else [value])]
        why = "added, as the ExtendedResourceToleration plugin does"
        lines += [f"  toleration   {key}:NoSchedule  {why}" for key in dict.fromkeys([one["key"] for one in added])]
        lines += [f"  template     {name}" for name in done.templates]
        lines += [f"  {'warning':<12} {text}" for text in warnings]
        for foretold in result.foretold:
            lines += [f"  {'beyond' if line.exceeded else 'within':<12} {line}" for line in foretold.lines]
        inputs.print_lines(lines)
    refused = sum(bool(done.refusals) for done in touched)
    changed = sum(done.changed for done in touched)
    stays = [done for done in touched if not done.refusals and not done.changed]
    to_webhook = sum(any(one.stays for one in done.decisions) for done in stays)
    left, others = len(touched) - changed - refused - to_webhook, len(results) - len(touched)
    objects = inputs.count_of(len(results), "object")
    pods = f"{to_webhook:,} translated at the webhook, " if to_webhook else ""
    inputs.print_lines(
        [
            f"{objects}: {changed:,} rewritten, {pods}{refused:,} refused, {left:,} left, {others:,} without a legacy request"
        ],
    )


def _write_into(edited: list[Edited], problems: list[InputProblem], *, dry_run: bool, err: bool, lenient: bool) -> None:
    """Write the edited files, and list them, on stderr if stdout has another answer; then what is not written."""
    from analysis.edited import write
    from analysis.undo import edit_lock, save
    from cluster.manifests import InputProblem

    remedy = "use the output of -o yaml"
    not_written = [
        InputProblem(one.path, f"cannot be edited in place: {one.problem}", remedy, one.line)
        for one in edited
        if one.problem
    ]
    not_written += problems
    changing = [one for one in edited if not one.problem]
    if not dry_run:
        with edit_lock():
            try:
                save(changing)
            except OSError as error:
                where = error.filename or "the state folder"
                inputs.warn(f"{where}: {error.strerror}: --undo will not work for these files")
            write(changing)
    verb = "would be edited" if dry_run else "edited"
    lines = [f"{one.path}: {verb}" for one in changing]
    if not edited and not problems:
        lines.append("nothing to edit")
    if not (err and inputs.quiet()):
        inputs.print_lines(lines, err=err)
    if lenient:
        for problem in not_written:
            inputs.warn(str(problem))
    elif not_written:
        inputs.report_unread(not_written)
        inputs.conclude(f"{inputs.count_of(len(changing), 'file')} {verb}, the rest not")


def _undo(files: Sequence[str], *, dry_run: bool) -> Exit:
    """Restore files; all of them, or none if one has conflicting later edits."""
    from analysis.edited import write
    from analysis.undo import forget, saved, undo

    found = saved(files)
    edits = [undo(one) for one in found]
    conflicts = [one for one in edits if one.problem]
    for one in conflicts:
        inputs.complain(f"{one.path}:{one.line}: error: {one.problem}")
    if conflicts:
        return Exit.REFUSED
    changing = [one for one in edits if one.before != one.after or one.is_removed]
    if not dry_run:
        # `write` also removes the temporary files that a killed run left beside unchanged files.
        write([one for one in edits if one in changing or Path(one.path).parent.is_dir()])
        forget(found)
    verb = "would be restored" if dry_run else "restored"
    inputs.print_lines([f"{one.path}: {verb}" for one in changing] or ["nothing to undo"])
    return Exit.FINE
