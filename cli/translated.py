"""`drawbridge translate`: objects of files as the webhook would translate them, the edits of the files, and the report."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from analysis.check import findings_of_decisions, locate
from analysis.claim_names import renamed
from analysis.configuration import in_mode
from analysis.findings import ObjectFindings
from analysis.loading import serves_node
from analysis.quota_use import findings_of_quotas, foretell
from analysis.report import Marked, Report, Rows
from analysis.requesting import requests_devices
from cli.applied import find_controlled, in_namespace, state_of_files
from cli.edited import diff
from cli.in_place import Result, edits, lines_of_helm
from cli.in_place import requests_devices as has_keys
from cli.output import warn
from cli.trees import Trees
from cluster.manifests import dump
from cluster.patch import apply_json_patch
from dra.finding import stated
from dra.raw import inside, text
from dra.texts import count_of
from dra.validation import name
from webhook.admission import decide_object
from webhook.claims import template
from webhook.dialects import Outcome
from webhook.names import PREFIX
from webhook.translate import PodVerdict, is_unknown_kind, keys_of, name_of, outcome_of, paths
from webhook.unknown import counts_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.loading import Reading
    from analysis.quota_use import Foretold
    from analysis.report import Cell, Part
    from cli.files import ReadFiles
    from cli.in_place import FileEdits
    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import Decision

_TEMPLATE = "ResourceClaimTemplate"
_CLAIMS = ("ResourceClaim", _TEMPLATE)
_DIGITS = 16


class Translator(NamedTuple):
    """Translates objects of files, of one namespace or of all."""

    state: State
    namespace: str
    rewrites_unknown: bool

    def each(self, documents: Sequence[Document]) -> list[Result]:
        """Translate objects that kustomize or helm built, each with all of its templates."""
        inside_, outside = in_namespace(documents, self.namespace)
        return [
            result
            for number, document in enumerate(documents)
            for result in self._translate(
                [document],
                [inside_[number]],
                {0} if number in outside or serves_node(inside_[number].object) else (),
                (),
                [],
            )
        ]

    def together(
        self,
        documents: Sequence[Document],
        placed: Sequence[Document],
        outside: Collection[int],
        inventory: Sequence[Document],
    ) -> list[Result]:
        """Translate objects of files; equal requests share a template.

        Objects that a controller created, and agents of a node, stay unchanged.
        """
        controlled = find_controlled(placed) | {
            number for number, document in enumerate(placed) if serves_node(document.object)
        }
        foretold = foretell(
            [document.object for document in placed], [document.object for document in inventory], self.state
        )
        return list(self._translate(documents, placed, outside, controlled, foretold))

    def _translate(
        self,
        documents: Sequence[Document],
        placed: Sequence[Document],
        outside: Collection[int],
        unchanged: Collection[int],
        foretold: list[Foretold],
    ) -> Iterator[Result]:
        # A template is written once in a namespace, unless the input has it already.
        written: set[tuple[str, str]] = set()
        for document in documents:
            metadata = inside(document.object, "metadata")
            if document.object.get("kind") == _TEMPLATE:
                written.add((text(metadata.get("namespace")), text(metadata.get("name"))))
        for number, document in enumerate(documents):
            namespace = text(inside(document.object, "metadata").get("namespace"))
            verdict = PodVerdict()
            if number not in outside and number not in unchanged:
                verdict = decide_object(placed[number].object, self.state, rewrite_unknown=self.rewrites_unknown)
            # The webhook's names are reserved for its own templates. The new name contains a hash of the content, too, so
            # that equal requests share a template and a second run changes nothing.
            names = {
                reserved: f"{spec['spec']['devices']['requests'][0]['name']}-{reserved.removeprefix(PREFIX)[:_DIGITS]}"
                for reserved, spec in verdict.templates.items()
            }
            templates = {names[reserved]: spec for reserved, spec in verdict.templates.items()}
            operations = tuple(renamed(operation, names) for operation in verdict.operations)
            verdict = msgspec.structs.replace(verdict, operations=operations, templates=templates)
            new = [free for free in verdict.templates if (namespace, free) not in written]
            written.update((namespace, free) for free in new)
            objects = [template.object_of(free, templates[free], namespace) for free in new]
            # Remove the label by which the webhook's controller finds and deletes its own templates.
            for made_template in objects:
                del made_template["metadata"]["labels"]
            obj = placed[number].object
            counts = bool(verdict.decisions) and counts_keys(obj, self.state)
            yield Result(
                name_of(obj),
                document,
                verdict,
                apply_json_patch(document.object, verdict.operations) if verdict.changed else document.object,
                tuple(objects),
                tuple(quota for quota in foretold if quota.number == number),
                requests=not counts and requests_devices(obj, verdict.decisions, self.state.configuration),
                counts=counts,
                is_own=number not in unchanged,
            )


def translate(
    reading: Reading,
    documents: Sequence[Document],
    inventory: Sequence[Document],
    *,
    mode: str | None,
    namespace: str,
    rewrites_unknown: bool,
) -> tuple[Translator, list[Result]]:
    """Translate documents of the files that were read. The translator can then translate objects that are built from these files."""
    placed, outside = in_namespace(documents, namespace)
    state = in_mode(state_of_files(reading.of_documents(placed, inventory)), mode)
    translator = Translator(state, namespace, rewrites_unknown)
    return translator, translator.together(documents, placed, outside, inventory)


def edit(translator: Translator, results: Sequence[Result], read: ReadFiles, files: Sequence[str]) -> FileEdits:
    """Edit the files of the results, and warn of the lines of charts that request devices."""
    keys = keys_of(translator.state.configuration)
    paths_ = [path for path in files if Path(path).exists()]
    trees = Trees(read.everything, [other.file for other in read.others], paths_)
    groups = trees.groups(lambda text_: has_keys(text_, keys))
    for line in lines_of_helm(trees, groups, keys):
        warn(str(line))
    return edits(results, translator.each, trees, groups, keys)


def diffs(results: Sequence[Result], edits: FileEdits) -> Iterator[str]:
    """Write diffs that git can apply; for a file that cannot be edited, write a diff of its objects to read."""
    for edited in edits.edited:
        yield "".join(diff(edited))
    for result in results:
        if result.translation.changed and os.path.realpath(result.document.file) in edits.uneditable:
            before = dump([result.document.object]).splitlines(keepends=True)
            after = dump([*result.templates, result.object]).splitlines(keepends=True)
            yield "".join(difflib.unified_diff(before, after, f"a/{result.name}", f"b/{result.name}"))


def why_unchanged(results: Sequence[Result]) -> str:
    """Return the reason why no object changes."""
    objects = count_of(len(results), "object")
    if asking := sum(result.requests for result in results):
        return f"nothing changes: devices are requested in {asking:,} of {objects}; `-o report` gives each reason"
    return f"nothing changes: {objects} read, and none requests devices by a key of a device plugin"


def unknown_kinds(documents: Sequence[Document]) -> str:
    """Count the objects of unknown kinds with pod templates; "" if there are none."""
    kinds: Counter[str] = Counter()
    for document in documents:
        obj = document.object
        if is_unknown_kind(obj) and paths(obj):
            kinds[str(obj.get("kind") or "without a kind")] += 1
    return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


def findings(results: Sequence[Result]) -> list[ObjectFindings]:
    """List the objects with the findings of their decisions and of quotas."""
    checked: list[ObjectFindings] = []
    for result in results:
        document, obj = result.document, result.document.object
        of_object = findings_of_decisions(obj, result.translation.decisions)
        of_object += [finding for quota in result.foretold for finding in findings_of_quotas(quota, obj)]
        checked.append(ObjectFindings(name(obj), document.place_of("")[0], locate(document, of_object)))
    return checked


def report(all_results: Sequence[Result]) -> Report:
    """Report the decision about each key, by object."""
    results = [result for result in all_results if result.is_own]
    parts: list[Part] = []
    for result in results:
        if rows := list(_decision_rows(result)):
            title = f"{result.name}  ({result.document.file}:{result.document.line})"
            parts.append(Rows(("", "", ""), rows, title))
    asking = [result for result in results if result.requests]
    # Quotas and queues count keys, and request no device. `survey` lists them apart, too.
    counting = sum(result.counts for result in results)
    outcomes = Counter(outcome_of(result.translation.decisions) for result in asking)
    counts = [f"{outcomes[outcome]:,} {outcome}" for outcome in Outcome if outcomes[outcome]]
    counts += [f"{counting:,} counting keys"] if counting else []
    counts.append(f"{len(results) - len(asking) - counting:,} without a legacy request")
    changed = sum(result.translation.changed and not result.translation.refusals for result in results)
    left = sum(any(decision.keep_reason for decision in result.translation.decisions) for result in results)
    to_webhook = f", {left:,} left to the webhook" if left else ""
    summary = f"{count_of(len(results), 'object')}, {changed:,} rewritten{to_webhook}: {', '.join(counts)}"
    return Report("Translation", parts, summary)


def _decision_rows(result: Result) -> Iterator[Sequence[Cell]]:
    """Write the decisions about an object, the added objects, its warnings, and the lines of quotas."""
    verdict = result.translation
    object_kind = "claim" if result.object.get("kind") in _CLAIMS else "pod"
    templates: dict[Decision, list[str]] = {}
    for decision in verdict.decisions:
        templates.setdefault(msgspec.structs.replace(decision, template="", amount="", pointer=""), []).append(
            decision.template
        )
    for decision, pointers in templates.items():
        where = (
            f"{decision.container or object_kind}: {decision.key}"
            if decision.key
            else decision.container or object_kind
        )
        detail = str(stated(decision.code, decision.reason, decision.remedy)) if decision.code else decision.reason
        detail = "; ".join(filter(None, (detail, decision.keep_reason and f"at the webhook: {decision.keep_reason}")))
        basis = f"[{decision.basis}]" if decision.basis else ""
        if len(pointers) > 1:
            where += f" ({len(pointers)} templates)"
        elif pointers[0]:
            where += f" in {pointers[0].removeprefix('/spec/').removesuffix('/template')}"
        yield Marked(decision.outcome), where, " ".join(filter(None, (detail, basis)))
    values = [operation["value"] for operation in verdict.operations if "/spec/tolerations" in operation["path"]]
    added = [record for value in values for record in (value if isinstance(value, list) else [value])]
    for key in dict.fromkeys([record["key"] for record in added]):
        yield "toleration", f"{key}:NoSchedule", "added, as the ExtendedResourceToleration plugin does"
    yield from (("template", free, "") for free in verdict.templates)
    # Warnings about a key are beside the key already, and those about a refused object do not matter yet.
    keyed = [decision for decision in verdict.decisions if decision.detail]
    for warning in () if verdict.refusals else verdict.warnings:
        reason = warning if isinstance(warning, str) else warning.message
        if not any(record.detail in reason or reason in record.detail for record in keyed):
            yield "warning", "", str(warning)
    for foretold in result.foretold:
        yield from (("beyond" if line.exceeded else "within", "", str(line)) for line in foretold.lines)


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return the objects and the decisions for `-o json`."""
    return {
        "items": [obj for result in results for obj in (*result.templates, result.object)],
        "decisions": [decision for result in results for decision in result.translation.decisions],
        "warnings": [f"{result.name}: {line}" for result in results for line in result.translation.warnings],
        "refusals": [f"{result.name}: {line}" for result in results for line in result.translation.refusals],
        "quotas": [
            {
                "object": result.name,
                "path": quota.path,
                "replicas": quota.replicas,
                "replicasLeft": quota.passing,
                "lines": [{**line.facts(), "exceeded": line.exceeded} for line in quota.lines],
            }
            for result in results
            for quota in result.foretold
        ],
    }
