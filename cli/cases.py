"""Test cases for rules and policies (`drawbridge test`).

A file has cases; each names a pod or workload and the expected result under a configuration and an inventory.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from analysis.arrivals import arrivals, brings_pods, created_pods
from analysis.configuration import configuration_in_force, features_of
from analysis.errors import Broken
from analysis.loading import reading_of_documents
from cli.applied import state_of_files
from cli.configuration import given_configuration, report_configuration
from cli.files import InputFiles, problems, read_input_files, refuse
from cluster.manifests import ManifestError, bounds, parse
from dra.texts import count_of
from dra.wire import WireError, convert
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.manifests import Document
    from dra.raw import Object
    from webhook.state import State
    from webhook.translate import PodVerdict


FILE = "drawbridge-test.yaml"


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Expected results; a field that is not set is not checked."""

    outcome: Outcome | None = None
    code: str = ""  # of a refusal
    devices: dict[str, int] | None = None  # by DeviceClass, for one pod of each template
    left: list[str] | None = None  # keys that stay unchanged
    says: str = ""  # a substring of any refusal, warning or decision
    fits: bool | None = None  # whether the allocator places every pod on the inventory


class ExpectedCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case. Paths are relative to the file of the case."""

    name: str
    pod: str | dict[str, Any]  # a file of pods or workloads, or the object itself
    expect: Expected
    inventory: list[str] = []


class Cases(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of cases, with the configuration and inventory that they share."""

    cases: list[ExpectedCase]
    config: str = ""
    inventory: list[str] = []


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one case; `problems` is empty if it passed."""

    file: str
    line: int
    name: str
    passed: bool
    problems: tuple[str, ...] = ()


def problems_of(
    expected: Expected, pods: Sequence[Document], inventory: Sequence[Document], state: State
) -> Iterator[str]:
    from webhook.admission import decide_object
    from webhook.translate import outcome_of

    created = [created_pod.pod for pod in pods for created_pod in created_pods(pod.object)]
    verdicts = [decide_object(pod, state) for pod in created]
    outcome = outcome_of(decision for verdict in verdicts for decision in verdict.decisions) or Outcome.LEFT
    texts = [
        text
        for verdict in verdicts
        for text in (
            *map(str, verdict.refusals),
            *map(str, verdict.warnings),
            *(decision.reason for decision in verdict.decisions),
        )
    ]
    if expected.outcome not in (None, outcome):
        why = next(
            (text for verdict in verdicts for text in (*map(str, verdict.refusals), *map(str, verdict.warnings))), ""
        )
        yield f"expected {expected.outcome}, got {outcome}{f': {why}' if why else ''}"
    codes = sorted({denial.code for verdict in verdicts for denial in verdict.refusals})
    if expected.code and expected.code not in codes:
        yield f"expected refusal {expected.code}, got {', '.join(codes) or 'none'}"
    if expected.devices is not None and expected.devices != (devices := dict(devices_of(created, verdicts))):
        yield f"expected devices {_listed(expected.devices)}, got {_listed(devices)}"
    if expected.left is not None:
        kept_keys = sorted(
            {
                decision.key
                for verdict in verdicts
                for decision in verdict.decisions
                if decision.outcome in (Outcome.LEFT, Outcome.SERVED)
            }
        )
        if sorted(expected.left) != kept_keys:
            yield f"expected keys left: {', '.join(sorted(expected.left)) or 'none'}; got {', '.join(kept_keys) or 'none'}"
    if expected.says and not any(expected.says in text for text in texts):
        yield f"expected a message with {expected.says!r}, got {'; '.join(filter(None, texts)) or 'none'}"
    if expected.fits is not None:
        unplaced = list(_unplaced(pods, inventory, state))
        if expected.fits and unplaced:
            yield f"expected every pod to be placed: {'; '.join(unplaced)}"
        if not expected.fits and not unplaced:
            yield "expected some pod not to be placed, but every pod is"


def devices_of(pods: Sequence[Object], verdicts: Sequence[PodVerdict]) -> Counter[str]:
    """Count the devices that the pods' new claims request, by class; of alternatives the first counts."""
    from cluster.patch import apply_json_patch
    from dra.objects import ResourceClaimTemplateSpec
    from dra.wire import convert

    counts: Counter[str] = Counter()
    for pod, verdict in zip(pods, verdicts, strict=True):
        for entry in apply_json_patch(pod, verdict.operations)["spec"].get("resourceClaims") or ():
            spec = verdict.templates.get(entry.get("resourceClaimTemplateName"))
            if spec is None:
                continue  # a claim that the pod's author wrote
            for request in convert(spec, ResourceClaimTemplateSpec).spec.devices.requests:
                first = next(iter(request.alternatives.values()))
                counts[first.device_class_name] += first.count or 1
    return counts


def _listed(devices: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(devices.items())) or "none"


def _unplaced(pods: Sequence[Document], inventory: Sequence[Document], state: State) -> Iterator[str]:
    """Describe each pod that the webhook refuses, or that the allocator cannot place beside the pods of the inventory."""
    from analysis.loading import reading_of
    from analysis.outlook import beside, place

    arrived = arrivals((pod.object for pod in pods), state)
    snapshot = beside(reading_of((document.object for document in inventory), state.features), arrived)
    for pod in place(snapshot, state, arrived.refused).pods:
        if pod.node is None:
            yield f"{pod.pod}: {pod.reason}"


def run(file: Path) -> Iterator[CaseResult]:
    """Run the cases of a file, or raise a ManifestError for an invalid one."""
    documents = read_input_files(InputFiles((str(file),)))
    if len(documents) != 1:
        raise Broken(
            f"{file} has {count_of(len(documents), 'document')}", "write all cases of a file into one document"
        )
    document = documents[0]
    try:
        cases = convert(document.object, Cases)
    except WireError as error:
        raise ManifestError(problems([(document, error.pointer, error.message)])) from error
    invalid = [] if cases.cases else [(document, "/cases", "cases is empty")]
    for number, case in enumerate(cases.cases):
        if case.expect == Expected():
            invalid.append((document, f"/cases/{number}/expect", "expect is empty"))
    refuse(invalid)
    given = given_configuration(_resolve(file, cases.config) if cases.config else None)
    if given is not None:
        given = given._replace(source=os.path.normpath(given.source))
    reported: set[str] = set()
    for number, case in enumerate(cases.cases):
        inventory = read_input_files(
            InputFiles(tuple(_resolve(file, path) for path in (*cases.inventory, *case.inventory)))
        )
        if isinstance(case.pod, str):
            pods = read_input_files(InputFiles((_resolve(file, case.pod),)))
        else:
            pods = parse(msgspec.json.encode(case.pod).decode())
        pointer = f"/cases/{number}"
        if not any(brings_pods(pod.object) for pod in pods):
            refuse([(document, f"{pointer}/pod", "pod contains neither a pod nor a workload")])
        in_force = configuration_in_force(given, pods, inventory)
        if in_force.source not in reported:
            report_configuration(in_force)
            reported.add(in_force.source)
        features = features_of(None, in_force.configuration)
        state = state_of_files(reading_of_documents(pods, inventory, features, in_force))
        differences = tuple(problems_of(case.expect, pods, inventory, state))
        yield CaseResult(
            file=str(file), line=document.line_of(pointer), name=case.name, passed=not differences, problems=differences
        )


def _resolve(file: Path, named_path: str) -> str:
    """Return a path that a file of cases names.

    A file below the working directory may be untrusted, so it may name only paths below that directory.
    """
    path = os.path.join(file.parent, named_path)  # noqa: PTH118  Path would make `-` of `./-`
    if bounds(str(file)) and not bounds(path):
        raise Broken(f"{file}: {named_path} is outside of the working directory", "name a file below that directory")
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise Broken(f"{file}: {named_path} is not a regular file", "name a file or a directory")
    return path
