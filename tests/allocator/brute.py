"""A second allocator for what the in-tree one does not know: plain depth-first search, every rule asked anew each time.

Knows exact requests, class selectors, counters, groups in both readings, and compatibleOnlyWith. Nothing is packed and
nothing is cut, so keep cases small.
"""

from dra import cel
from dra.policy.rules import Rules, admits, group_states, join, own_state
from dra.stock.counters import available


class Brute:
    def __init__(self, stock, node, claims):
        self.stock, self.claims = stock, claims
        self.rules = Rules(stock.compatibilities.values())
        self.pools = {pool.id: pool for pool in stock.pools(node)}
        self.devices = [
            (pool.id, device) for pool in self.pools.values() for page in pool.here for device in page.devices
        ]
        self.wanted = [
            (claim, request.exactly, number)
            for claim in claims
            for request in claim.spec.devices.requests
            for number in range(request.exactly.count)
        ]

    def first(self):
        """Find the first way to serve all requests: device names in order, or None."""
        return self.search(0, [], 0)

    def search(self, at, chosen, start):
        if at == len(self.wanted):
            return [device.name for _, device in chosen]
        _, body, number = self.wanted[at]
        for place in range(start if number else 0, len(self.devices)):
            pool, device = self.devices[place]
            if self.selects(body, pool, device) and self.may_join(pool, device, chosen):
                found = self.search(at + 1, [*chosen, (pool, device)], place + 1)
                if found is not None:
                    return found
        return None

    def selects(self, body, pool, device):
        class_ = self.stock.classes[body.device_class_name]
        texts = [one.cel.expression for one in (*class_.spec.selectors, *body.selectors)]
        return all(cel.compile(text).matches(cel.view_of(pool[0], device)) for text in texts)

    def may_join(self, pool, device, chosen):
        use = self.stock.use(pool)
        if use.holds(device.name) or any(other.name == device.name for where, other in chosen if where == pool):
            return False
        conflicts = self.rules.conflicts(self.pools[pool]).get(device.name, ())
        mates = [other for where, other in chosen if where == pool]
        if any(use.holds(name) for name in conflicts) or any(other.name in conflicts for other in mates):
            return False
        left = available(self.pools[pool], use)
        states = group_states(self.pools[pool], use, self.rules)
        for mate in mates:
            for one in mate.consumes_counters:
                own = own_state(one.compatibility_groups, wild=self.rules.wild(pool[0], mate))
                states[one.counter_set] = join(states.get(one.counter_set), own)
                for name, counter in one.counters.items():
                    left[one.counter_set][name] -= counter.value.nano
        for one in device.consumes_counters:
            own = own_state(one.compatibility_groups, wild=self.rules.wild(pool[0], device))
            if not admits(states.get(one.counter_set), own):
                return False
            for name, counter in one.counters.items():
                left[one.counter_set][name] -= counter.value.nano
        return not device.consumes_counters or all(value >= 0 for set_ in left.values() for value in set_.values())
