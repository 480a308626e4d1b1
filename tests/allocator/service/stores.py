"""Embedded stores whose writes fail, are slow, or get no answer."""

import asyncio

from cluster.embedded import Embedded


class Faulty(Embedded):
    """A store whose writes of claims can fail. `faults` maps the number of a write to an error before it; `after` to an error after it."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.last = None  # writes after this number get no answer
        self.ignored = 0
        self.heard = asyncio.Event()  # set to let the ignored writes through
        self.faults = {}
        self.after = {}

    async def patch(self, resource, name, patch, namespace=None, **more):
        if resource.kind != "ResourceClaim" or more.get("dry_run"):
            return await super().patch(resource, name, patch, namespace, **more)
        if len(self.writes) == self.last:
            self.ignored += 1
            await self.heard.wait()
        self.writes.append((name, more.get("subresource", "")))
        number = len(self.writes)
        if number in self.faults:
            raise self.faults.pop(number)
        written = await super().patch(resource, name, patch, namespace, **more)
        if number in self.after:
            raise self.after.pop(number)
        return written


def faulty(*objects):
    cluster = Faulty()
    cluster.load(list(objects))
    return cluster
