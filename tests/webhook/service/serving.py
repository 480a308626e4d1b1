"""The webhook's server with a decider that allows each review, on a real socket."""

import asyncio
import json
from collections import Counter
from copy import copy
from types import SimpleNamespace

import msgspec

from webhook.admission import Record, ReviewAnswer
from webhook.admission import admission_review as reviews
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.state import State

REQUEST = {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}}
REVIEW = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": REQUEST}).encode()
ENFORCE = State(configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="enforce")))
JSON = {"Content-Type": "application/json"}


def review_of(name, **fields):
    """Return a review of a pod with this name; `Allowing` acts on the name."""
    return json.dumps(json.loads(REVIEW) | {"request": REQUEST | {"name": name} | fields}).encode()


class Allowing:
    """A decider that allows every pod. Some names of pods make a decision undecided, failing, or refused at first."""

    def __init__(self):
        self.decisions = Counter()
        self.budgets = []  # the namespace and the CPU seconds of each decision
        self.current_state = ENFORCE
        self.changes_state = True  # whether the state changes after a refusal
        self.checks_without_template = 0  # how many checks report a missing template

    def awaits_template(self, _outcome):
        self.checks_without_template -= 1
        return self.checks_without_template >= 0

    def state(self):
        return self.current_state

    def decide(self, path, body, _state, cpu_seconds):
        request = reviews.decode(body)
        self.decisions[path] += 1
        self.budgets.append((request.namespace, cpu_seconds))
        if request.name == "bug":
            raise RuntimeError("a bug")
        is_first = self.decisions[path] < 2
        refused = request.name.startswith("refused") and is_first
        if refused and self.changes_state:
            self.current_state = copy(ENFORCE)  # a new state, as if the missing class had been created
        outcome = "refused" if refused else "undecided" if request.name.endswith("undecided") else "untouched"
        record = Record(path=path, uid=request.uid, mode="enforce", outcome=outcome)
        denial = reviews.DenialStatus(message="no class")
        response = reviews.deny(request.uid, denial) if refused else reviews.allow(request.uid)
        return ReviewAnswer(response=response, record=record)


class Running(SimpleNamespace):
    """A started server with its decider and metrics, and clients for it."""

    async def connect(self, peer="127.0.0.1"):
        """Open a connection that is closed at the end of the test."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls, local_addr=(peer, 0))
        self.writers.append(writer)
        return reader, writer

    async def post(self, body=REVIEW, path="/mutate?timeout=3s", **kwargs):
        kwargs.setdefault("headers", JSON)
        async with self.session.post(f"{self.url}{path}", data=body, **kwargs) as response:
            return response.status, await response.text()

    async def get(self, path):
        async with self.session.get(f"{self.url}{path}") as response:
            return response.status, await response.text()


# A request with this head is incomplete until its body has 99 bytes. For other bodies, tests replace the 99.
HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"


async def connections_with(running, count, data):
    """Open connections, and send these bytes on each."""
    connections = []
    for _ in range(count):
        reader, writer = await running.connect()
        writer.write(data)
        await writer.drain()
        connections.append((reader, writer))
    return connections
