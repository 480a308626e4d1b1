"""`drawbridge translate`: manifests that ask the old way become manifests with claims. Never touches a cluster.

The same code as the webhook, so the same answer for equal configuration and inventory; what differs is that workloads
are rewritten at their pod templates, and that the claim templates stand in the output instead of on the pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from cli import contract as inputs
from cli.configuration import configuration_of
from cli.contract import Broken, Exit
from cluster.manifests import Document
from webhook.translate import Translation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.state import Configuration, Features, State

    Object = dict[str, Any]

_TEMPLATE = "ResourceClaimTemplate"
# What looking ahead for one object may cost.
STEPS = 1_000_000


class Result(msgspec.Struct, frozen=True):
    """One object as it was read, what became of it, and the templates that must stand before it."""

    document: Document
    translation: Translation
    object: Object
    templates: tuple[Object, ...] = ()


@inputs.command("translate", empty={"items": [], "decisions": []})
@inputs.files()
@inputs.inventory()
@click.option("--config", metavar="FILE", help="A DrawbridgeConfiguration; without it, the defaults.")
@click.option("--all-kinds", is_flag=True, help="Look for pod templates in kinds we do not know, too.")
@click.option("--kubernetes", default="1.37", show_default=True, metavar="1.N", help="The version that the result is for.")  # fmt: skip
@inputs.output("yaml", "json", "diff", "patch", "report", default="yaml")
def command(
    *,
    files: tuple[str, ...],
    inventory: tuple[str, ...],
    config: str | None,
    all_kinds: bool,
    kubernetes: str,
    output: str,
) -> Exit:
    """Rewrite pods and workloads that ask the old way into ones with ResourceClaims.

    Everything else passes through, in order. What is refused passes through as it was, and the exit is 1.
    """
    configuration = configuration_of(config, files, inventory)
    around = inputs.read(inventory, files) if inventory else []
    documents = inputs.read_what_can_be(files)
    results = list(
        _translate_all(
            documents,
            _world(around, documents, configuration, _features(kubernetes), known=bool(inventory)),
            unknown=all_kinds,
        )
    )
    _PRINTERS[output](results)
    if output in ("yaml", "diff", "patch"):
        _tell(results)
    return Exit.REFUSED if any(result.translation.refusals for result in results) else Exit.FINE


def _features(version: str) -> Features:
    from webhook.state import Features

    major, _, minor = version.removeprefix("v").partition(".")
    number = minor.partition(".")[0]
    if major != "1" or not number.isdecimal():
        raise Broken(f"{version!r} is not a version of Kubernetes", "write it like 1.37")
    return Features(minor=int(number))


def _world(
    around: list[Document], documents: list[Document], configuration: Configuration, features: Features, *, known: bool
) -> State:
    """What the webhook would know: the fleet if one was given, and whatever limits a namespace."""
    from webhook.state import State

    limits = [*around, *documents]
    state = State(
        configuration=configuration,
        features=features,
        quotas=_quotas(limits),
        limit_ranges=_limit_ranges(limits),
    )
    return _with_fleet(state, around) if known else state


_KINDS = ("DeviceClass", "ResourceSlice", "Node", "DeviceTaintRule", "DeviceCompatibility")


def _with_fleet(state: State, documents: Iterable[Document]) -> State:
    """Add the devices. Whether some node could serve a claim is asked only where the input describes a whole fleet."""
    from cli.devices import read_objects
    from dra.objects import DeviceClass, Node, ResourceSlice
    from webhook.state import Inventory, prospects

    described = [document for document in documents if document.object.get("kind") in _KINDS]
    given = read_objects(described)
    classes = given.of(DeviceClass)
    slices = given.of(ResourceSlice)
    nodes = given.of(Node)
    file = state.configuration.file
    fleet = Inventory.of(classes, slices, nodes, evidence=file.evidence)
    shown = msgspec.structs.replace(state, fleet=fleet)
    if not (classes and slices and nodes):
        return shown
    stock = given.stock()
    possible = prospects(file.node_templates, stock)
    return msgspec.structs.replace(shown, stock=stock, prospects=possible)


def _quotas(documents: Iterable[Document]) -> dict[str, frozenset[str]]:
    """Which keys the ResourceQuotas limit, by namespace."""
    from webhook.translate import mapping

    quotas: dict[str, frozenset[str]] = {}
    for document in documents:
        quota = document.object
        if quota.get("kind") != "ResourceQuota":
            continue
        spec = mapping(quota.get("spec"))
        hard = mapping(spec.get("hard"))
        name = _namespace(quota) or "default"
        before = quotas.get(name, frozenset())
        quotas[name] = before.union(hard)
    return quotas


def _limit_ranges(documents: Iterable[Document]) -> dict[str, frozenset[str]]:
    """Which keys the LimitRanges bound or fill in, by namespace."""
    from cluster.manifests import ManifestError
    from cluster.objects import LimitRange
    from dra.wire import WireError, convert

    ranges: dict[str, frozenset[str]] = {}
    for document in documents:
        if document.object.get("kind") == "LimitRange":
            try:
                keys = convert(document.object, LimitRange).keys
            except WireError as error:
                raise ManifestError(inputs.problems([(document, error.pointer, error.message)])) from error
            name = _namespace(document.object) or "default"
            ranges[name] = ranges.get(name, frozenset()) | keys
    return ranges


def _translate_all(
    documents: list[Document],
    state: State,
    *,
    unknown: bool,
) -> Iterator[Result]:
    from cluster.patch import apply_json_patch
    from webhook.claims import template
    from webhook.translate import translate_object

    # A template is written once in a namespace, and not at all where the input has it already.
    written = {(_namespace(d.object), _name(d.object)) for d in documents if d.object.get("kind") == _TEMPLATE}
    for document in documents:
        namespace = _namespace(document.object)
        done = _foretold(translate_object(document.object, state, unknown=unknown), state)
        new = [name for name in done.templates if (namespace, name) not in written]
        written.update((namespace, name) for name in new)
        yield Result(
            document,
            done,
            apply_json_patch(document.object, done.operations) if done.changed else document.object,
            tuple(template.object_of(name, done.templates[name], namespace) for name in new),
        )


def _foretold(done: Translation, state: State) -> Translation:
    """Add what the gate would say to claims made of the templates: that no node could ever serve them, for one."""
    if state.stock is None or not done.templates:
        return done
    from dra.budget import Budget
    from webhook.admission import foresee

    ahead = foresee(done.templates, state, Budget(STEPS))
    return msgspec.structs.replace(done, warnings=(*ahead, *done.warnings)) if ahead else done


def _namespace(obj: Object) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""


def _name(obj: Object) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _objects(results: Iterable[Result]) -> list[Object]:
    return [obj for result in results for obj in (*result.templates, result.object)]


def _as_yaml(results: list[Result]) -> None:
    from cluster import manifests

    click.echo(manifests.dump(_objects(results)), nl=False)


def _as_json(results: list[Result]) -> None:
    inputs.write_json(
        {
            "items": _objects(results),
            "decisions": [decision for result in results for decision in result.translation.decisions],
            "warnings": [text for result in results for text in _named_texts(result, result.translation.warnings)],
            "refusals": [text for result in results for text in _named_texts(result, result.translation.refusals)],
        }
    )


def _as_patch(results: list[Result]) -> None:
    """One JSON Patch for each object that changes, beside the templates it needs."""
    changed = [result for result in results if result.translation.changed]
    inputs.write_json(
        [
            {
                "object": _reference(result),
                "patch": result.translation.operations,
                "templates": result.templates,
            }
            for result in changed
        ]
    )


def _as_diff(results: list[Result]) -> None:
    import difflib

    from cluster import manifests

    for result in results:
        if not result.translation.changed:
            continue
        name = _reference(result)
        before = manifests.dump([result.document.object]).splitlines(keepends=True)
        after = manifests.dump([*result.templates, result.object]).splitlines(keepends=True)
        click.echo("".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")), nl=False)


def _as_report(results: list[Result]) -> None:
    """What became of each key, for people."""
    touched = [result for result in results if result.translation.decisions]
    for result in touched:
        inputs.tell(_story(result))
    refused = sum(bool(result.translation.refusals) for result in touched)
    changed = sum(result.translation.changed for result in touched)
    left, others = len(touched) - changed - refused, len(results) - len(touched)
    objects = inputs.count_of(len(results), "object")
    inputs.tell(
        [f"{objects}: {changed} rewritten, {refused} refused, {left} left, {others} without a legacy request"],
    )


def _story(result: Result) -> Iterator[str]:
    from webhook.refusals import sentence

    yield f"{_reference(result)}  ({result.document.file}:{result.document.line})"
    for decision in result.translation.decisions:
        where = f"{decision.container or 'pod'}: {decision.key}"
        basis = f" [{decision.basis}]" if decision.basis else ""
        detail = sentence(decision.code, decision.detail, decision.remedy) if decision.code else decision.detail
        yield f"  {decision.action:<12} {where}{'  ' + detail if detail else ''}{basis}"
    for name in result.translation.templates:
        yield f"  template     {name}"


_PRINTERS = {
    "yaml": _as_yaml,
    "json": _as_json,
    "patch": _as_patch,
    "diff": _as_diff,
    "report": _as_report,
}


def _reference(result: Result) -> str:
    from webhook.translate import name_of

    return name_of(result.document.object)


def _named_texts(result: Result, texts: Iterable[str]) -> list[str]:
    name = _reference(result)
    return [f"{name}: {text}" for text in texts]


def _tell(results: list[Result]) -> None:
    """Say on stderr what was refused, left or approximated, and where it stands."""
    for result in results:
        done = result.translation
        if not done.refusals and not done.warnings:
            continue
        where = f"{result.document.file}:{result.document.line}"
        for kind, texts in (("error", done.refusals), ("warning", done.warnings)):
            for text in _named_texts(result, texts):
                click.echo(f"{where}: {kind}: {text}", err=True)
