"""Finds the mistakes in a configuration file whose fields have valid types, mostly in the administrator's own tables and targets.

A configuration affects the pods of all tenants. So it is rejected if a part of it has no effect, can never match, matches keys of another system,
or could make a review too expensive. The types of the fields are checked before (`webhook.state.schema`).
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.strategies import UnknownStrategy, read_placement
from dra import cel, step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget, QuantityError, SelectorError
from dra.finding import Finding, finding_at
from dra.objects import Device, OpaqueDeviceConfiguration
from dra.pointer import escape
from dra.policy import BY_CLASS, BY_IMPLICIT_NAME, BY_NAME, COUNT_KEY
from dra.quantity import parse
from dra.server import mistakes
from dra.texts import list_first
from dra.validation import MAX_BYTES, names, parameter_problems, shape
from dra.wire import Opaque
from webhook.dialects import (
    AUTO,
    NUMBER,
    REPLACED,
    TARGETS,
    VOCABULARIES,
    Outcome,
    Position,
    Role,
    Unit,
    compile_expression,
    mistake,
    pattern,
    plain,
    too_costly,
)
from webhook.names import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from webhook.dialects import Dialect, DialectOptions, Row, Target
    from webhook.state.schema import (
        BridgeSettings,
        ExtendedResources,
        File,
        KubernetesSettings,
        Placing,
        PreferredNodes,
    )

# The names of all rows are in the matchConditions of the webhook configurations: the API server compares them with the keys of each pod.
MAX_ROWS = 512
MAX_NAMED = 20  # maximum number of existing names in a message about an unknown name
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
_PART = re.compile(r"<[A-Za-z]+>")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,252}").fullmatch
_QUOTA_FORMS = f"write CLASS{BY_CLASS}, {BY_IMPLICIT_NAME}CLASS, {BY_NAME}NAME of a class with that extendedResourceName, or {COUNT_KEY}"
_COUNTED = {Role.COUNT: (Unit.COUNT,), Role.MEMORY: (Unit.BYTES, Unit.MIB, Unit.GIB)}


class _NameForm(NamedTuple):
    """The form of a kind of name: a function that returns what is wrong with a name, or "", and the remedy."""

    problem_of: Callable[[str], str]
    remedy: str


_DRIVER = _NameForm(names.driver_name, "write the name in spec.driver of the driver's ResourceSlices")
_DEVICE_CLASS = _NameForm(names.dns_subdomain, "write the name of a DeviceClass")
_ATTRIBUTE = _NameForm(names.c_identifier, "write the name that the driver's ResourceSlices use")
_ATTRIBUTE_DOMAIN = _ATTRIBUTE._replace(problem_of=names.driver_name)


def contradictions(file: File) -> Iterable[Finding]:
    """Find all mistakes of a file that make it invalid, except those in `nodeTemplates`."""
    built_in = {vocabulary.table.name: vocabulary.table for vocabulary in VOCABULARIES}
    dialects = built_in | {table.name: table for table in file.dialects}
    targets = TARGETS | {target.name: target for target in file.targets}
    yield from unknown_names("/keys", file.keys, dialects, "dialect")
    yield from unknown_names("/disabled", file.disabled, dialects, "dialect")
    for dialect, renames in file.keys.items():
        if dialect in dialects:
            known = {row.name for row in dialects[dialect].keys}
            yield from unknown_names(f"/keys/{escape(dialect)}", renames, known, "key of the dialect")
            yield from _wrong_renames(f"/keys/{escape(dialect)}", renames, dialects[dialect])
    yield from _wrong_meanings(file, dialects)
    is_known = _key_test(file, dialects.values())
    yield from _wrong_keys(file, is_known)
    yield from wrong_targets(file, targets)
    for i, model in enumerate(file.models):
        if not bytes_of(model.memory):
            yield mistake(
                f"/models/{i}/memory",
                f"{model.memory!r} is not an amount of memory",
                "write a quantity such as 80Gi",
            )
    yield from wrong_tables(file, targets)
    yield from _wrong_joints(file, is_known)
    for name in built_in:
        for finding in file.options(name).mistakes():
            yield replace(finding, path=f"/{name}{finding.path}")
        yield from _wrong_options(name, file.options(name), targets)
    for namespace in file.extended_resources.namespaces:
        yield from _wrong_namespace("/extendedResources/namespaces", namespace)
    for namespace in file.cpu_claims.namespaces:
        yield from _wrong_namespace("/cpuClaims/namespaces", namespace)
    for i, namespace in enumerate(file.evidence.namespaces):
        yield from [replace(finding, path=f"/evidence/namespaces/{i}") for finding in _wrong_namespace("", namespace)]
    yield from _wrong_list("/evidence/drivers", file.evidence.drivers, _DRIVER)
    yield from _wrong_labels("/evidence/nodeSelector", file.evidence.node_selector)
    yield from _wrong_list("/kueue/deviceClasses", file.kueue.device_classes, _DEVICE_CLASS)
    for driver in file.extended_resources.drivers:
        yield from _invalid_name(f"/extendedResources/drivers/{escape(driver)}", driver, _DRIVER)
    if file.bridge is not None:
        yield from _wrong_list("/bridge/drivers", file.bridge.drivers, _DRIVER)
        yield from _wrong_placement(file.bridge.placement)
        yield from _fence_conflicts(file.bridge, file.extended_resources)
    for key, quota in file.quotas.items():
        if problem := _wrong_quota(quota):
            reason = f"{quota[:80]!r} is not a key by which a ResourceQuota counts claims: {problem}"
            yield mistake(f"/quotas/{escape(key)}", reason, _QUOTA_FORMS)


def _wrong_renames(path: str, renames: Mapping[str, str], table: Dialect) -> Iterable[Finding]:
    """Find new names of keys that no pod can have. A key whose built-in name breaks these rules is not checked."""
    for row in table.keys:
        if (renamed := renames.get(row.name)) and not any(_wrong_name(row, "")):
            yield from _wrong_name(replace(row, name=renamed), f"{path}/{escape(row.name)}")


def _wrong_list(path: str, listed: Iterable[str], form: _NameForm) -> Iterable[Finding]:
    for i, name in enumerate(listed):
        yield from _invalid_name(f"{path}/{i}", name, form)


def _wrong_labels(path: str, labels: Mapping[str, str]) -> Iterable[Finding]:
    """Find labels that no node can have."""
    for key, value in labels.items():
        problem = names.label_key(key)
        if problem:
            problem = f"label {key[:80]!r} {problem}"
        elif value_problem := names.label_value(value):
            problem = f"value {value[:80]!r} {value_problem}"
        if problem:
            yield mistake(f"{path}/{escape(key)}", problem, "write a label that nodes can have")


def _wrong_quota(quota: str) -> str:
    """Return why a ResourceQuota counts no claims by a key; "" if it counts some (`dra.policy.quota_keys`)."""
    if quota == COUNT_KEY:
        return ""
    if quota.endswith(BY_CLASS):
        class_name = quota.removesuffix(BY_CLASS)
    elif quota.startswith(BY_IMPLICIT_NAME):
        class_name = quota.removeprefix(BY_IMPLICIT_NAME)
    elif quota.startswith(BY_NAME):
        name = quota.removeprefix(BY_NAME)
        wrong = names.extended_resource_name(name)
        return f"resource {name[:80]!r} {wrong}" if wrong else ""
    else:
        return "it has none of the known forms"
    wrong = names.dns_subdomain(class_name)
    return f"class {class_name[:80]!r} {wrong}" if wrong else ""


def _wrong_options(dialect: str, options: DialectOptions, targets: Mapping[str, Target]) -> Iterable[Finding]:
    """Find native resources that no claim can replace, and unknown targets."""
    for resource in options.host_targets():
        path = f"/{dialect}/hostResources/{escape(resource)}"
        if resource != "cpu" and not resource.startswith("hugepages-"):
            yield mistake(
                path,
                f"{resource!r} is not a pod resource that claims can replace",
                "write cpu or hugepages-SIZE",
            )
    for path, target in options.named_targets().items():
        if target not in targets:
            hint = f"describe the target under `targets`, or write one of {', '.join(targets)}"
            yield mistake(f"/{dialect}{path}", f"unknown target {target!r}", hint)


def wrong_kubernetes_settings(kubernetes: KubernetesSettings) -> Iterable[Finding]:
    """Find a version or feature gates that no known server has. These are warnings, because this drawbridge may be older than the server."""
    for gate, error in mistakes(kubernetes.version, kubernetes.feature_gates):
        where = f"featureGates/{escape(gate)}" if gate else "version"
        yield finding_at("C002", f"/kubernetes/{where}", str(error), error.remedy)


def doubtful_parameters(file: File, targets: Mapping[str, Target]) -> Iterable[Finding]:
    """Find parameters that the known versions of a driver do not read. These are warnings, because a newer driver may read them."""
    for name, parameters in file.parameters.items():
        first = Opaque(parameters.json.replace(NUMBER, b"0"))
        opaque = OpaqueDeviceConfiguration(driver=targets[name].driver, parameters=first)
        path = f"/parameters/{escape(name)}"
        for parameter_problem in parameter_problems(opaque, path):
            yield replace(parameter_problem, path=parameter_problem.path.replace(f"{path}/parameters", path, 1))


def _wrong_placement(placing: Placing) -> Iterable[Finding]:
    """Find unknown strategies and malformed numbers."""
    path = "/bridge/placement"
    strategies = {"strategy": placing.strategy}
    for namespace, strategy in placing.namespaces.items():
        where = f"namespaces/{escape(namespace)}"
        strategies[where] = strategy
        yield from _wrong_namespace(f"{path}/namespaces", namespace)
    for where, strategy in strategies.items():
        try:
            read_placement(strategy)
        except UnknownStrategy as error:
            yield mistake(
                f"{path}/{where}",
                str(error),
                "write NAME, or NAME=WEIGHT,NAME=WEIGHT (docs/commands.md#drawbridge-simulate)",
            )


def _fence_conflicts(bridge: BridgeSettings, served: ExtendedResources) -> Iterable[Finding]:
    """Find settings that leave pods to kube-scheduler, although a fence keeps kube-scheduler from the devices of these pods."""
    if not (bridge.fence and bridge.drivers):
        return
    choices = {f"namespaces/{escape(namespace)}": choice for namespace, choice in served.namespaces.items()}
    choices |= {"autoscaled": served.autoscaled} if served.autoscaled else {}
    for driver in bridge.drivers:
        field = f"drivers/{escape(driver)}" if driver in served.drivers else "default"
        choices[field] = served.choose(driver, "", "", managed=True, autoscaled=False)
    for field, choice in choices.items():
        if choice == "leave":
            reason = "such pods are left to kube-scheduler, which bridge.fence keeps from the bridge's devices"
            yield mistake(f"/extendedResources/{field}", reason, "write translate, or fence: false")


def _wrong_namespace(path: str, name: str) -> Iterable[Finding]:
    if not _NAMESPACE(name):
        reason = f"{name!r} is not the name of a namespace"
        yield mistake(f"{path}/{escape(name)}", reason, "write the whole name, because patterns are not supported")


def _wrong_meanings(file: File, dialects: Mapping[str, Dialect]) -> Iterable[Finding]:
    """Find meanings that are neither the name of a dialect nor one of the choices of `BareKey`."""
    bare_keys = [vocabulary.bare for vocabulary in VOCABULARIES if vocabulary.bare]
    meaning_names = dict.fromkeys(", ".join(bare.choices for bare in bare_keys).split(", "))
    for key, meaning in file.meanings.items():
        if meaning == "leave" or meaning in dialects or any(bare.declared(meaning) for bare in bare_keys):
            continue
        suggestion = shape.nearest_name(meaning, ["leave", *meaning_names, *dialects])
        hint = f"leave, {', '.join(meaning_names)}, or a dialect: {', '.join(dialects)}"
        hint = f"did you mean {suggestion}? {hint}" if suggestion else hint
        yield mistake(f"/meanings/{escape(key)}", f"unknown meaning {meaning!r}", hint)


def _key_test(file: File, dialects: Iterable[Dialect]) -> Callable[[str], bool]:
    """Return a function that tests whether a dialect has a resource key, with the names from `keys`."""
    known = {row.name for dialect in dialects for row in dialect.keys if row.place is Position.RESOURCE}
    for renamed in file.keys.values():
        known.update(renamed.values())
    patterns = []
    for name in known:
        with suppress(re.error):  # `wrong_tables` reports it
            patterns += [pattern(name)] if "<" in name else []
    return lambda key: key in known or any(matches(key) for matches in patterns)


def _wrong_keys(file: File, is_known: Callable[[str], bool]) -> Iterable[Finding]:
    """Find unknown keys under `mixed`, `meanings` and `quotas`, and entries of `mixed` that do not have exactly one rule."""
    for field, keys in (("mixed", file.mixed), ("meanings", file.meanings), ("quotas", file.quotas)):
        for key in keys:
            if not is_known(key):
                bare = key.removeprefix("requests.")
                hint = f"write {bare}" if is_known(bare) else "`drawbridge dialects` lists all keys"
                yield mistake(f"/{field}/{escape(key)}", f"no dialect knows the key {key!r}", hint)
    for key, policy in file.mixed.items():
        path = f"/mixed/{escape(key)}"
        yield from _wrong_preference(path, policy)
        for namespace, own in policy.namespaces.items():
            yield from _wrong_namespace(f"{path}/namespaces", namespace)
            yield from _wrong_preference(f"{path}/namespaces/{escape(namespace)}", own)


def _wrong_preference(path: str, nodes: PreferredNodes) -> Iterable[Finding]:
    fields = [nodes.prefer is not None, nodes.percent is not None, bool(nodes.node_selector)]
    if sum(fields) != 1:
        subject = "more than one field" if any(fields) else "nothing"
        reason = f"{subject} selects the preferred nodes"
        yield mistake(path, reason, "write one of prefer: dra, prefer: plugin, percent or nodeSelector")
    yield from _wrong_labels(f"{path}/nodeSelector", nodes.node_selector)


def _wrong_joints(file: File, is_known: Callable[[str], bool]) -> Iterable[Finding]:
    """Find pairs with an unknown key or a malformed attribute."""
    for i, joint in enumerate(file.joint):
        if joint.attribute != AUTO and (name_problem := names.fully_qualified_name(joint.attribute)):
            reason = f"attribute {joint.attribute[:80]!r} {name_problem}"
            yield mistake(f"/joint/{i}/attribute", reason, f"write the attribute as example.com/model, or {AUTO}")
        for part in ("primary", "secondary"):
            name = getattr(joint, part)
            if not is_known(name):
                hint = "describe it in a table of your own (`dialects`)"
                yield mistake(f"/joint/{i}/{part}", f"no dialect knows the key {name!r}", hint)


def bytes_of(text: str) -> int:
    """Return the bytes of an amount of memory; 0 if it is malformed."""
    try:
        return max(parse(text).value(), 0)
    except QuantityError:
        return 0


def unknown_names(path: str, names_: Iterable[str], known: Iterable[str], noun: str) -> Iterator[Finding]:
    """Find names that are not among `known`; the pointer has the index in a tuple, or the key of a mapping."""
    known = sorted(known)
    for at, name in enumerate(names_):
        if name in known:
            continue
        where = str(at) if isinstance(names_, tuple) else escape(name)
        yield mistake(f"{path}/{where}", f"{name!r} is not a {noun}", one_of(name, known))


def one_of(name: str, known: Sequence[str]) -> str:
    suggestion = shape.nearest_name(name, list(known))
    question = f"did you mean {suggestion}? " if suggestion else ""
    return f"{question}one of {list_first(known, MAX_NAMED)}"


def wrong_tables(file: File, targets: Mapping[str, Target]) -> Iterator[Finding]:
    """Find mistakes in the administrator's own tables."""
    rows = sum([len(table.keys) for table in file.dialects])
    if rows > MAX_ROWS or len(file.dialects) > MAX_ROWS:
        yield mistake(
            "/dialects",
            f"{rows} keys are more than {MAX_ROWS}",
            "write patterns such as example.com/gpu-<model>",
        )
        return
    built_in = {vocabulary.table.name: vocabulary.table for vocabulary in VOCABULARIES}
    names_ = [table.name for table in file.dialects]
    rows_by_key = {
        (row.place, file.keys.get(dialect.name, {}).get(row.name, row.name)): (dialect, row)
        for dialect in built_in.values()
        if dialect.name not in file.disabled
        for row in dialect.keys
    }
    # Built-in names with a varying part, without those that match every name of their domain.
    patterns: list[tuple[str, Dialect, Row]] = []
    for (position, name), (dialect, row) in rows_by_key.items():
        before, mark, _ = name.partition("<")
        if position is Position.RESOURCE and mark and not before.endswith("/"):
            patterns.append((name, dialect, row))
    for i, table in enumerate(file.dialects):
        path = f"/dialects/{i}"
        if table.name in built_in or names_.index(table.name) != i:
            yield mistake(f"{path}/name", f"dialect {table.name!r} exists already", "choose another name")
        elif names.dns_label(table.name.lower()):
            yield mistake(f"{path}/name", f"{table.name[:80]!r} is not a name", "write letters, digits and hyphens")
        yield from _unknown_target(f"{path}/target", table.target, targets)
        for j, row in enumerate(table.keys):
            where = f"{path}/keys/{j}"
            if row.target:
                yield from _unknown_target(f"{where}/target", row.target, targets)
            yield from _wrong_row(row, table, where)
            other_table, other_row = rows_by_key.setdefault((row.place, row.name), (table, row))
            if other_row is row:
                other_table, other_row = _find_overlapping(row, patterns) or (table, row)
            if other_row is not row and not (row.common and other_row.common):
                reason = f"{row.name!r} is a key of dialect {other_table.name!r} already"
                hint = f"rename the key of {other_table.name} (`keys.{other_table.name}`), or write `common: true` in both tables and the meaning under `meanings`"
                yield mistake(f"{where}/name", reason, hint)
        yield from _wrong_shaping(table, path)


def _unknown_target(path: str, name: str, targets: Mapping[str, Target]) -> Iterator[Finding]:
    if name not in targets:
        yield mistake(path, f"unknown target {name!r}", one_of(name, list(targets)))


def _wrong_shaping(table: Dialect, path: str) -> Iterator[Finding]:
    """Find keys that refine a request although no key of the dialect requests anything, and two refining keys with the same role."""
    has_request = any(row.place is Position.RESOURCE and row.role is not Role.NONE for row in table.keys)
    names_by_role: dict[tuple[bool, Role], str] = {}
    for number, row in enumerate(table.keys):
        if row.place is Position.RESOURCE or row.role not in plain.SHAPING:
            continue
        where = f"{path}/keys/{number}/role"
        if not has_request and not names_by_role:
            reason = (
                "this key modifies a container's request, but no key of this dialect requests anything on a container"
            )
            yield mistake(where, reason, "add the resource name by which the containers request devices")
        first_name = names_by_role.setdefault((row.place is Position.ENV, row.role), row.name)
        if first_name != row.name:
            reason = f"{first_name} already has role {row.role}, and a pod may have both keys"
            yield mistake(where, reason, "give one of the two keys another role, or move it into a table of its own")


def _find_overlapping(row: Row, patterns: Iterable[tuple[str, Dialect, Row]]) -> tuple[Dialect, Row] | None:
    """Return a built-in pattern that matches a name which the row matches, too; None if there is none."""
    if row.place is not Position.RESOURCE:
        return None
    prefix, mark, _ = row.name.partition("<")
    for name, dialect, other in patterns:
        other_prefix, _, _ = name.partition("<")
        if mark:
            overlaps = prefix.startswith(other_prefix) or other_prefix.startswith(prefix)
        else:
            overlaps = pattern(name)(row.name) is not None
        if overlaps:
            return dialect, other
    return None


def _wrong_row(row: Row, table: Dialect, path: str) -> Iterator[Finding]:
    """Find the mistakes of one row: in its name, its role, its bounds, its texts and its expression."""
    if row.most is not None and row.most < row.least:
        yield mistake(f"{path}/most", f"{row.most} is below {row.least}", "write a `most` that is not below `least`")
    yield from _wrong_name(row, f"{path}/name")
    yield from _wrong_role(row, table, path)
    if row.expression:
        yield from _wrong_expression(row, path)


def _wrong_name(row: Row, path: str) -> Iterator[Finding]:
    """Find names that no pod can have, names of Kubernetes or drawbridge, and patterns that match too much."""
    before, mark, _ = row.name.partition("<")
    full_name = row.name
    if mark or ">" in full_name:
        part, rest = _PART.findall(full_name), _PART.sub("", full_name)
        if len(part) != 1 or "<" in rest or ">" in rest or "/" not in before or row.place is not Position.RESOURCE:
            reason = f"{full_name[:80]!r} is not a supported pattern"
            yield mistake(path, reason, "write one <part> behind the slash of a resource name, or the whole name")
            return
        if before.endswith("/"):
            reason = f"{full_name[:80]!r} would match every name of its domain"
            yield mistake(path, reason, "after the slash, begin with the text that all of your names have in common")
        full_name = _PART.sub("x", full_name)
    domain, slash, _ = full_name.partition("/")
    if row.place is Position.RESOURCE and (not slash or _is_below(domain, "kubernetes.io")):
        reason = f"{row.name[:80]!r} is one of Kubernetes' own resources, not a device"
        yield mistake(path, reason, "write the extended resource name, such as example.com/gpu")
        return
    if slash and _is_below(domain, DOMAIN):
        yield mistake(path, f"{row.name[:80]!r} is a name of drawbridge's own", "write the key that your pods have")
        return
    if row.place is Position.RESOURCE:
        problem = names.extended_resource_name(full_name)
    elif row.place is not Position.ENV:
        problem = names.label_key(full_name)
    else:
        form = "must consist of letters, digits, '_', '-' and '.', and not begin with a digit"
        problem = "" if _VARIABLE(full_name) else form
    if problem:
        noun = "variable" if row.place is Position.ENV else "key"
        yield mistake(
            path,
            f"{row.name[:80]!r} cannot be the name of a {noun}: {problem}",
            "write the name as pods have it",
        )


def _is_below(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


def _wrong_role(row: Row, table: Dialect, path: str) -> Iterator[Finding]:
    """Find an outcome that a table cannot declare, and a role that has no effect in the key's position or that the unit does not fit."""
    if row.outcome not in (*REPLACED, Outcome.LEFT):
        reason = f"a table cannot declare a key as {row.outcome}"
        yield mistake(f"{path}/outcome", reason, "write translated, approximated or left")
    if row.place is Position.RESOURCE and row.name.startswith("rdma/") and row.role is Role.NIC:
        reason = "role nic requests any network device, even a device without RDMA"
        yield mistake(f"{path}/role", reason, "write `role: rdma`")
    if row.role is Role.NONE:
        return
    allowed = plain.ROLES[row.place]
    if row.role not in allowed:
        unread = f"a table cannot give a resource the role {row.role}" if row.place is Position.RESOURCE else ""
        reason = unread or f"role {row.role} has no effect on a {row.place}"
        yield mistake(f"{path}/role", reason, f"one of {', '.join(allowed)}, or none")
        return
    if row.place is Position.ENV and table.scope == "pod":
        reason = "a variable belongs to one container, but the numbers of this dialect belong to the whole pod"
        yield mistake(f"{path}/role", reason, "leave `role` out, or write `scope: container`")
    units = _COUNTED.get(row.role)
    if units and row.unit not in units and not row.expression:
        yield mistake(f"{path}/unit", f"role {row.role} cannot be counted in {row.unit}", f"one of {', '.join(units)}")


def _wrong_expression(row: Row, path: str) -> Iterator[Finding]:
    """Find an expression that does not compile, returns a type that the role cannot use, or costs too much."""
    path = f"{path}/expression"
    expected_types = plain.cel_types(row.role)
    if not expected_types:
        yield mistake(path, "nothing reads the value of this key", "leave `expression` out, or give the key a role")
        return
    try:
        compiled = compile_expression(row.expression)
    except SelectorError as error:
        position = "" if error.position is None else f" (at character {error.position + 1})"
        yield mistake(path, f"{error.message}{position}", "write CEL over the text `value`, such as int(value)")
        return
    if str(compiled.result_type) not in (*expected_types, "dyn"):
        hint = f"wrap the expression in {'int(…)' if expected_types[0] == 'int' else 'string(…)'}"
        yield mistake(
            path,
            f"the expression returns {compiled.result_type}, but role {row.role} needs {' or '.join(expected_types)}",
            hint,
        )
    elif too_costly(compiled):
        yield mistake(
            path, "the expression costs too much on a long value", "read the value once, without nested loops"
        )


def wrong_targets(file: File, targets: Mapping[str, Target]) -> Iterator[Finding]:
    """Find mistakes in the administrator's own targets, and in the classes and parameters of targets."""
    names_ = [target.name for target in file.targets]
    for i, target in enumerate(file.targets):
        path = f"/targets/{i}"
        if target.name in TARGETS or names_.index(target.name) != i:
            yield mistake(f"{path}/name", f"target {target.name!r} exists already", "choose another name")
        yield from _wrong_target(target, path)
        for field in ("instead", "virtual"):
            if other := getattr(target, field):
                yield from _unknown_target(f"{path}/{field}", other, targets)
    yield from unknown_names("/classes", file.classes, targets, "target")
    yield from unknown_names("/parameters", file.parameters, targets, "target")
    for name, parameters in file.parameters.items():
        path = f"/parameters/{escape(name)}"
        if not isinstance(parameters.value(), dict):
            yield mistake(path, "the API server accepts only an object", "write the driver's fields below the target")
        elif len(parameters.json) > MAX_BYTES:
            yield mistake(
                path,
                f"{len(parameters.json)} bytes are more than the API server accepts",
                f"write at most {MAX_BYTES} bytes",
            )
    owners = {name: target for target in targets.values() for name in target.classes}
    for name, class_ in file.classes.items():
        owner = owners.get(class_)
        if problem := names.dns_subdomain(class_):
            yield mistake(f"/classes/{escape(name)}", f"{class_[:80]!r} {problem}", "write a DeviceClass's name")
        elif name in targets and owner is not None and owner.driver != targets[name].driver:
            reason = f"class {class_} belongs to target {owner.name!r}, so requests for {name!r} would get devices of {owner.name!r}"
            yield mistake(
                f"/classes/{escape(name)}",
                reason,
                f"write `target: {owner.name}` in the rows that request such devices",
            )


def _wrong_target(target: Target, path: str) -> Iterator[Finding]:
    """Find names that would be invalid in claims, or that would change the meaning of a CEL expression."""
    yield from _invalid_name(f"{path}/driver", target.driver, _DRIVER)
    request = target.request
    is_misnamed = not request[:1].isalpha() or names.dns_label(request)
    if len(request) > 20 or is_misnamed:
        reason = f"{request[:80]!r} cannot be the beginning of a request's name"
        yield mistake(f"{path}/request", reason, "write at most 20 lower-case letters, digits and hyphens")
    yield from _wrong_list(f"{path}/classes", target.classes, _DEVICE_CLASS)
    # Full names of attributes: a domain and an identifier.
    attribute_names = {"unique": target.unique, "product": target.product}
    attribute_names |= {f"attributes/{j}": name for j, name in enumerate(target.attributes)}
    for member, name in attribute_names.items():
        domain, slash, id_ = name.partition("/")
        if name and not slash:
            reason = f"{name[:80]!r} is not the full name of an attribute"
            yield mistake(f"{path}/{member}", reason, f"write {target.driver}/{name[:80]}")
        elif name:
            yield from _invalid_name(f"{path}/{member}", domain, _ATTRIBUTE_DOMAIN)
            yield from _invalid_name(f"{path}/{member}", id_, _ATTRIBUTE)
    # Names of attributes and capacities in the driver's own domain.
    own_names = {
        "profile": target.profile,
        "memory": target.memory,
        "cores": target.cores,
        "virtualFlag": target.virtual_flag,
    }
    own_names |= {f"true/{j}": name for j, name in enumerate(target.true)}
    own_names |= {f"rdmaFlags/{j}": name for j, name in enumerate(target.rdma_flags)}
    own_names |= {f"where/{escape(name)}": name for name in target.where}
    for member, name in own_names.items():
        domain, _, id_ = name.partition("/")
        if domain == target.driver and id_:
            yield mistake(f"{path}/{member}", f"{name[:80]!r} repeats the driver's domain", f"write {id_[:80]}")
        elif name or "/" in member:
            yield from _invalid_name(f"{path}/{member}", name, _ATTRIBUTE)
    for name, value in target.where.items():
        if names.size(value) > names.MAX_VALUE:
            reason = f"the value has more than {names.MAX_VALUE} characters"
            yield mistake(f"{path}/where/{escape(name)}", reason, "write the value that the driver publishes")
    for j, text in enumerate(target.selectors):
        yield from _wrong_selector(text, target.driver, f"{path}/selectors/{j}")


def _wrong_selector(text: str, driver: str, path: str) -> Iterator[Finding]:
    """Find a selector that the API server would refuse in a claim, or that fails on a device without an attribute."""
    budget = Budget(step_limits.RULE_SELECTOR, max_call_steps=step_limits.RULE_SELECTOR)
    try:
        selector: cel.Selector | None = cel.compile(text, cel.NEW, budget=budget)
    except SelectorError as error:
        yield mistake(path, str(error), "write CEL over `device`, as in a DeviceClass")
        return
    except OutOfBudget:
        selector = None
    if selector is None or selector.max_cost > cel.MAX_COST:
        yield mistake(
            path, "the selector is too long or costs too much for the API server", "write several shorter selectors"
        )
        return
    try:
        selector.matches(cel.view_of(driver, Device(name="")), budget)
    except (SelectorError, OutOfBudget) as error:
        reason = f"the selector fails on a device that publishes nothing: {error}"
        yield mistake(path, reason, 'guard each attribute, such as .?name.orValue("")')


def _invalid_name(path: str, name: str, form: _NameForm) -> Iterator[Finding]:
    if problem := form.problem_of(name):
        yield mistake(path, f"{name[:80]!r} {problem}", form.remedy)
