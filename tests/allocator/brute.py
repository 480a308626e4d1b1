"""A second, slow allocator, for rules that Kubernetes' own allocator does not have.

It supports exact requests, class selectors, counters, compatibility groups in both readings (`dra.policy.compatibility` describes
them), and compatibleOnlyWith. It tries all combinations, and evaluates every rule for each of them, so keep cases small.
"""

from dra import cel
from dra.errors import SelectorError
from dra.policy.compatibility import Rules, admits, group_states, join, own_state
from dra.stock.counters import available
from dra.stock.pool import reaches


def only_node_of(resource_slice, device):
    """Return the name of the only node that can use a device, or None if several nodes can use the device."""
    return device.node_name if resource_slice.spec.per_device_node_selection else resource_slice.spec.node_name


def exclude_each_other(compatibilities, first, second):
    """Return whether a rule forbids two devices together. A device is a tuple of its pool (driver and name), its node, and its body."""
    (first_pool, first_node, _), (second_pool, second_node, _) = first, second
    for rule in compatibilities:
        spec = rule.spec
        if spec.driver != first_pool[0] or spec.driver != second_pool[0] or not spec.compatible_only_with:
            continue
        counter_sets = [
            {consumption.counter_set for consumption in body.consumes_counters} for *_, body in (first, second)
        ]
        is_in_scope = {
            "pool": first_pool == second_pool,
            "counterSet": first_pool == second_pool and bool(counter_sets[0] & counter_sets[1]),
            "node": first_node is not None and first_node == second_node,
        }
        if not is_in_scope[spec.scope]:
            continue
        for selected, neighbour in ((first, second), (second, first)):
            is_selected = not spec.selector or matches(spec.selector, selected, result_on_error=True)
            if is_selected and not matches(spec.compatible_only_with, neighbour, result_on_error=False):
                return True
    return False


def matches(expression, device, *, result_on_error):
    (driver, _), _, body = device
    try:
        return cel.compile(expression).matches(cel.view_of(driver, body))
    except SelectorError:
        return result_on_error


class Brute:
    def __init__(self, stock, node, claims):
        self.stock, self.claims = stock, claims
        self.rules = Rules(stock.compatibilities.values())
        self.pools = {pool.id: pool for pool in stock.pools(node)}
        self.devices = [
            (pool.id, device)
            for pool in self.pools.values()
            for page in pool.accessible
            for device in page.devices
            if not page.slice.spec.per_device_node_selection or reaches(device, stock.nodes[node])
        ]
        # An allocation names only the pool and the device, and pages of several generations may have a device of this name. The first page with
        # the name is used. Pages that the node cannot access come after all others; in both parts, newer pages precede older ones.
        newest = sorted(stock.pages.values(), key=lambda page: -page.generation)
        pages = sorted(
            newest, key=lambda page: page.pool in self.pools and page not in self.pools[page.pool].accessible
        )
        self.device_by_name = {}
        for page in pages:
            for device in page.devices:
                self.device_by_name.setdefault(
                    (page.pool, device.name), (page.pool, only_node_of(page.slice, device), device)
                )
        self.held_devices = [device for key, device in self.device_by_name.items() if stock.use(key[0]).holds(key[1])]
        self.requested_devices = [
            (claim, request.exactly, number)
            for claim in claims
            for request in claim.spec.devices.requests
            for number in range(request.exactly.count)
        ]

    def first(self):
        """Return the first way to serve all requests, as device names in order, or None."""
        return self.search(0, [], 0)

    def search(self, position, chosen, start):
        """Return the names of `chosen` and of devices for all positions from `position` on; None if there is no way.

        A further device of the same request has at least the index `start`.
        """
        if position == len(self.requested_devices):
            return [device.name for _, device in chosen]
        _, request, number = self.requested_devices[position]
        for index in range(start if number else 0, len(self.devices)):
            pool, device = self.devices[index]
            if self.selects(request, pool, device) and self.may_join(pool, device, chosen):
                result = self.search(position + 1, [*chosen, (pool, device)], index + 1)
                if result is not None:
                    return result
        return None

    def selects(self, request, pool, device):
        class_ = self.stock.classes[request.device_class_name]
        expressions = [selector.cel.expression for selector in (*class_.spec.selectors, *request.selectors)]
        return all(cel.compile(expression).matches(cel.view_of(pool[0], device)) for expression in expressions)

    def may_join(self, pool, device, chosen):
        use = self.stock.use(pool)
        if use.holds(device.name) or any(
            other.name == device.name for chosen_pool, other in chosen if chosen_pool == pool
        ):
            return False
        held_and_chosen = [
            *self.held_devices,
            *(self.device_by_name[chosen_pool, other.name] for chosen_pool, other in chosen),
        ]
        candidate = self.device_by_name[pool, device.name]
        if any(exclude_each_other(self.stock.compatibilities.values(), candidate, other) for other in held_and_chosen):
            return False
        chosen_of_pool = [other for chosen_pool, other in chosen if chosen_pool == pool]
        remaining = available(self.pools[pool], use)
        states = group_states(self.pools[pool], use, self.rules)
        # If a device is `wild` (`Rules.wild`) and declares no groups, it is compatible with all devices.
        for chosen_device in chosen_of_pool:
            for consumption in chosen_device.consumes_counters:
                state = own_state(consumption.compatibility_groups, wild=self.rules.wild(pool[0], chosen_device))
                states[consumption.counter_set] = join(states.get(consumption.counter_set), state)
                for name, counter in consumption.counters.items():
                    remaining[consumption.counter_set][name] -= counter.value.nano
        for consumption in device.consumes_counters:
            state = own_state(consumption.compatibility_groups, wild=self.rules.wild(pool[0], device))
            if not admits(states.get(consumption.counter_set), state):
                return False
            for name, counter in consumption.counters.items():
                remaining[consumption.counter_set][name] -= counter.value.nano
        return not device.consumes_counters or all(
            value >= 0 for counters in remaining.values() for value in counters.values()
        )
