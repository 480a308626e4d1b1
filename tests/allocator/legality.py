"""Checks whether the allocations of an answer follow all rules.

The checks do not depend on the allocator's search: they evaluate one rule after the other for the devices of the answer.
"""

from collections import Counter

from allocator.problem.candidates import values_of
from dra import cel
from dra.objects.taint import blocks
from dra.policy.compatibility import Rules, admits, group_states, join, own_state
from dra.stock.capacity import charges
from dra.stock.counters import available
from dra.stock.pool import PoolStatus, reaches


def violations(stock, node, claims, answer):
    """Return a text for each rule that an answer violates."""
    return list(_Checker(stock, node, claims, answer).violations())


def with_type(value):
    """Return a pair of a value's type and its text, because constraints distinguish values of different types."""
    kinds = {bool: "bool", int: "int", str: "string"}
    return kinds.get(type(value), "version"), str(value)


class _Checker:
    def __init__(self, stock, node, claims, answer):
        self.stock, self.node, self.claims, self.answer = stock, stock.nodes[node], claims, answer
        self.pools = {pool.id: pool for pool in stock.pools(node)}
        self.rules = Rules(stock.compatibilities.values())
        self.devices = {
            (*pool.id, device.name): (page, device)
            for pool in self.pools.values()
            for page in pool.accessible
            for device in page.devices
        }
        self.checked_results = []

    def violations(self):
        if [allocation.claim for allocation in self.answer.allocations] != [
            f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}" for claim in self.claims
        ]:
            yield "the answer has allocations for other claims than those of the question"
            return
        for claim, granted in zip(self.claims, self.answer.allocations, strict=True):
            results = granted.allocation.devices.results
            yield from self.claim_violations(claim, results)
        yield from self.double_uses()
        yield from self.capacity_violations()
        for id_ in self.pools:
            yield from self.pool_violations(id_)

    def claim_violations(self, claim, results):
        if len(results) > 32:
            yield "more than 32 devices in a claim"
        bodies = {}
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                bodies[request.name] = request.exactly
            used_alternatives = {result.request for result in results if result.request.startswith(f"{request.name}/")}
            may_be_empty = any(
                alternative.allocation_mode == "ExactCount" and alternative.count == 0
                for alternative in request.first_available
            )
            if request.first_available and len(used_alternatives) != 1 and not (may_be_empty and not used_alternatives):
                yield f"{request.name}: the request must use one alternative, but uses {sorted(used_alternatives)}"
            bodies |= {
                f"{request.name}/{alternative.name}": alternative
                for alternative in request.first_available
                if f"{request.name}/{alternative.name}" in used_alternatives
            }
        for name, body in bodies.items():
            results_of_request = [result for result in results if result.request == name]
            devices = [(result.driver, result.pool, result.device) for result in results_of_request]
            if len(set(devices)) != len(devices):
                yield f"{name}: the request got a device twice"
            if body.allocation_mode == "ExactCount" and len(results_of_request) != body.count:
                yield f"{name}: {len(results_of_request)} devices instead of {body.count}"
            if body.allocation_mode == "All" and not results_of_request:
                yield f"{name}: the request for all devices got none"
            for result, id_ in zip(results_of_request, devices, strict=True):
                yield from self.result_violations(claim, name, body, result, id_)
        if {result.request for result in results} - bodies.keys():
            yield "there are results for requests that the claim does not have"
        yield from self.constraint_violations(claim, bodies, results)

    def result_violations(self, claim, name, body, result, id_):
        if id_ not in self.devices or self.pools[id_[:2]].status is not PoolStatus.OK:
            yield f"{name}: {id_} cannot be reached"
            return
        page, device = self.devices[id_]
        class_ = self.stock.classes[body.device_class_name]
        for selector in (*class_.spec.selectors, *body.selectors):
            if not cel.compile(selector.cel.expression).matches(cel.view_of(id_[0], device)):
                yield f"{name}: {id_} does not match {selector.cel.expression}"
        if page.slice.spec.per_device_node_selection and not reaches(device, self.node):
            yield f"{name}: {id_} cannot be used by this node"
        if any(blocks(taint, body.tolerations) for taint in device.taints):
            yield f"{name}: {id_} is tainted"
        amounts = charges(body.capacity.requests if body.capacity else {}, device.capacity)
        if amounts is None or any(amount > device.capacity[key].value for key, amount in amounts.items()):
            yield f"{name}: {id_} does not have the capacity"
        elif device.allow_multiple_allocations and dict(result.consumed_capacity) != amounts:
            yield f"{name}: {id_} is charged {result.consumed_capacity} instead of {amounts}"
        if bool(result.share_id) != bool(device.allow_multiple_allocations):
            yield f"{name}: {id_} lacks a share ID, or has one although the device is not shared"
        if bool(result.admin_access) != bool(getattr(body, "admin_access", None)):
            yield f"{name}: admin access of the result and of the request differ"
        self.checked_results.append((claim, result, id_, page, device, amounts or {}))

    def constraint_violations(self, claim, bodies, results):
        for constraint in claim.spec.devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute
            value_sets = []
            for result in results:
                request_name = result.request.partition("/")[0]
                if constraint.requests and not {request_name, result.request} & set(constraint.requests):
                    continue
                _, device = self.devices[result.driver, result.pool, result.device]
                derived = {
                    derived_attribute.name: derived_attribute.expression
                    for derived_attribute in bodies[result.request].derived_attributes
                }
                if attribute in derived:
                    derived_value = cel.compile(derived[attribute], derived=True).derive(
                        cel.view_of(result.driver, device)
                    )
                    values = frozenset(
                        with_type(value)
                        for value in (derived_value if isinstance(derived_value, list) else [derived_value])
                    )
                else:
                    domain, _, unqualified_name = attribute.partition("/")
                    unqualified = device.attributes.get(unqualified_name) if domain == result.driver else None
                    values = frozenset(
                        (kind, str(value)) for kind, value in values_of(device.attributes.get(attribute) or unqualified)
                    )
                value_sets.append(values)
            if not all(value_sets):
                yield f"{attribute}: a device lacks the attribute"
            elif constraint.match_attribute and value_sets and not frozenset.intersection(*value_sets):
                yield f"{attribute}: the devices have no value in common"
            elif constraint.distinct_attribute and sum(map(len, value_sets)) != len(frozenset().union(*value_sets)):
                yield f"{attribute}: two devices have the same value"

    def double_uses(self):
        uses = Counter()
        for claim, result, id_, _, device, _ in self.checked_results:
            use = self.stock.use(id_[:2])
            if not result.admin_access and id_[2] in use.dedicated:
                yield f"{id_} is in use"
            if device.allow_multiple_allocations:
                continue
            own_key = f"{claim.metadata.namespace}/{claim.metadata.name}"
            if not result.admin_access and uses[id_]:
                yield f"{id_} is taken twice"
            if result.admin_access and uses[id_, own_key]:
                yield f"{id_} is taken twice by one claim"
            uses[id_] += 1
            uses[id_, own_key] += 1

    def capacity_violations(self):
        amounts_by_capacity = Counter()
        for _, _, id_, _, device, amounts in self.checked_results:
            if device.allow_multiple_allocations:
                for name, amount in amounts.items():
                    amounts_by_capacity[id_, name] += amount.nano
        for (id_, name), amount in amounts_by_capacity.items():
            used = self.stock.use(id_[:2]).used.get(id_[2], {}).get(name, 0)
            if used + amount > self.devices[id_][1].capacity[name].value.nano:
                yield f"{id_}: more {name} is in use than the device has"

    def pool_violations(self, id_):
        pool, use = self.pools[id_], self.stock.use(id_)
        results_of_pool = [
            (result, device) for _, result, device_id, _, device, _ in self.checked_results if device_id[:2] == id_
        ]
        charged = []
        for result, device in results_of_pool:
            is_further_share = device.allow_multiple_allocations and (
                device.name in use.shared or any(d is device for _, d in charged)
            )
            if not is_further_share:
                charged.append((result, device))
        consuming = [(result, device) for result, device in charged if device.consumes_counters]
        remaining = available(pool, use)
        for _, device in consuming:
            for consumption in device.consumes_counters:
                for name, counter in consumption.counters.items():
                    remaining[consumption.counter_set][name] -= counter.value.nano
        if consuming and any(amount < 0 for counters in remaining.values() for amount in counters.values()):
            yield f"{id_}: a counter is below zero"
        states = group_states(pool, use, self.rules)
        for _, device in consuming:
            for consumption in device.consumes_counters:
                own_groups = own_state(consumption.compatibility_groups, wild=self.rules.wild(id_[0], device))
                state = states.get(consumption.counter_set)
                if not admits(state, own_groups):
                    yield f"{device.name}: no common compatibility group on {consumption.counter_set}"
                states[consumption.counter_set] = join(state, own_groups)
        conflicts = self.rules.conflicts(pool)
        conflicts_across = self.rules.conflicts_across(self.pools.values(), self.node.metadata.name).get(id_, {})
        answer_ids = {device_id for _, _, device_id, *_ in self.checked_results}
        for _, device in charged:
            in_use = {d.name for _, d in charged} | set(use.dedicated) | set(use.shared)
            if conflicts.get(device.name, frozenset()) & in_use:
                yield f"{device.name}: a rule forbids it together with {conflicts[device.name] & in_use}"
            for other in conflicts_across.get(device.name, ()):
                if other in answer_ids or self.stock.use(other[:2]).holds(other[2]):
                    yield f"{device.name}: a rule forbids it together with {other}"
