"""A second allocator, for rules that the in-tree allocator does not have: a depth-first search that evaluates every rule each time.

It supports exact requests, class selectors, counters, groups in both readings, and compatibleOnlyWith. It tries all
combinations without any optimisation, so keep cases small.
"""

from dra import cel
from dra.errors import SelectorError
from dra.policy.rules import Rules, admits, group_states, join, own_state
from dra.stock.counters import available
from dra.stock.pool import reaches


def home(slice_, device):
    """Return the node of a device, or None if several nodes can use it."""
    return device.node_name if slice_.spec.per_device_node_selection else slice_.spec.node_name


def apart(compatibilities, first, other):
    """Return whether a rule forbids two devices together, each given as (driver and pool, node, device)."""
    for rule in compatibilities:
        spec = rule.spec
        if spec.driver != first[0][0] or spec.driver != other[0][0] or not spec.compatible_only_with:
            continue
        sets = [{consumption.counter_set for consumption in device.consumes_counters} for *_, device in (first, other)]
        near = {
            "pool": first[0] == other[0],
            "counterSet": first[0] == other[0] and bool(sets[0] & sets[1]),
            "node": first[1] is not None and first[1] == other[1],
        }
        if not near[spec.scope]:
            continue
        for bearer, beside in ((first, other), (other, first)):
            picked = not spec.selector or matches(spec.selector, bearer, failing=True)
            if picked and not matches(spec.compatible_only_with, beside, failing=False):
                return True
    return False


def matches(expression, placed, *, failing):
    try:
        return cel.compile(expression).matches(cel.view_of(placed[0][0], placed[2]))
    except SelectorError:
        return failing


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
        # A held device is identified by its name, in slices of any generation.
        newest = sorted(stock.pages.values(), key=lambda page: -page.generation)
        pages = sorted(
            newest, key=lambda page: page.pool in self.pools and page not in self.pools[page.pool].accessible
        )
        self.placed = {}
        for page in pages:
            for device in page.devices:
                self.placed.setdefault((page.pool, device.name), (page.pool, home(page.slice, device), device))
        self.held = [holder for key, holder in self.placed.items() if stock.use(key[0]).holds(key[1])]
        self.wanted = [
            (claim, request.exactly, number)
            for claim in claims
            for request in claim.spec.devices.requests
            for number in range(request.exactly.count)
        ]

    def first(self):
        """Return the first way to serve all requests, as device names in order, or None."""
        return self.search(0, [], 0)

    def search(self, at, chosen, start):
        if at == len(self.wanted):
            return [device.name for _, device in chosen]
        _, body, number = self.wanted[at]
        for place in range(start if number else 0, len(self.devices)):
            pool, device = self.devices[place]
            if self.selects(body, pool, device) and self.may_join(pool, device, chosen):
                rest = self.search(at + 1, [*chosen, (pool, device)], place + 1)
                if rest is not None:
                    return rest
        return None

    def selects(self, body, pool, device):
        class_ = self.stock.classes[body.device_class_name]
        texts = [selector.cel.expression for selector in (*class_.spec.selectors, *body.selectors)]
        return all(cel.compile(text).matches(cel.view_of(pool[0], device)) for text in texts)

    def may_join(self, pool, device, chosen):
        use = self.stock.use(pool)
        if use.holds(device.name) or any(other.name == device.name for where, other in chosen if where == pool):
            return False
        others = [*self.held, *(self.placed[where, other.name] for where, other in chosen)]
        mine = self.placed[pool, device.name]
        if any(apart(self.stock.compatibilities.values(), mine, other) for other in others):
            return False
        mates = [other for where, other in chosen if where == pool]
        left = available(self.pools[pool], use)
        states = group_states(self.pools[pool], use, self.rules)
        for mate in mates:
            for consumes_counter in mate.consumes_counters:
                own = own_state(consumes_counter.compatibility_groups, wild=self.rules.wild(pool[0], mate))
                states[consumes_counter.counter_set] = join(states.get(consumes_counter.counter_set), own)
                for name, counter in consumes_counter.counters.items():
                    left[consumes_counter.counter_set][name] -= counter.value.nano
        for consumes_counter in device.consumes_counters:
            own = own_state(consumes_counter.compatibility_groups, wild=self.rules.wild(pool[0], device))
            if not admits(states.get(consumes_counter.counter_set), own):
                return False
            for name, counter in consumes_counter.counters.items():
                left[consumes_counter.counter_set][name] -= counter.value.nano
        return not device.consumes_counters or all(value >= 0 for set_ in left.values() for value in set_.values())
