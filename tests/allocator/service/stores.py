"""An embedded store whose writes of claims fail or get no answer."""

import asyncio

from cluster.embedded import Embedded


class FaultyStore(Embedded):
    """A store whose writes of claims can fail or get no answer. The first write has the number 1.

    `errors_before` and `errors_after` map the number of a write to the error that is raised before or after the store carries out the write.
    """

    def __init__(self, *objects):
        super().__init__()
        self.load(list(objects))
        self.writes = []
        self.last_answered = None  # the number of the last write that gets an answer; None if all writes do
        self.unanswered = 0
        self.may_answer = asyncio.Event()  # set by a test to answer the remaining writes
        self.errors_before = {}
        self.errors_after = {}

    async def patch(self, resource, name, patch, namespace=None, **options):
        if resource.kind != "ResourceClaim" or options.get("dry_run"):
            return await super().patch(resource, name, patch, namespace, **options)
        if len(self.writes) == self.last_answered:
            self.unanswered += 1
            await self.may_answer.wait()
        self.writes.append((name, options.get("subresource", "")))
        number = len(self.writes)
        if number in self.errors_before:
            raise self.errors_before.pop(number)
        written = await super().patch(resource, name, patch, namespace, **options)
        if number in self.errors_after:
            raise self.errors_after.pop(number)
        return written
