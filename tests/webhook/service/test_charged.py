"""Every loop over input of a caller charges the review's budget, because only the budget interrupts a decision on the event loop.

The tests count the executed lines of Python between two charges, so a busy machine gives the same result. They do not count the
calls of libraries, whose input has at most `MAX_BYTES` bytes. They do not count the compilation of selectors, which
`Budget.charge_whole` charges.
"""

import json
import sys
from contextlib import suppress

import pytest

from cli.commands.demo import EXAMPLES
from cluster import manifests
from cluster.resources import resource_of
from dra import cel
from dra.budget import Budget
from dra.wire import convert
from serving.http import count_members
from tests.loops import every
from tests.webhook.hostile import CORPUS, GPU, REVIEWS, crowded_pod, review, selecting_claim
from tests.webhook.pods import expression, required_affinity
from webhook.admission import ReviewError
from webhook.admission import review as admission
from webhook.service.app import DecisionLimits
from webhook.service.configuration_file import Source
from webhook.service.decider import WHOLE_LANGUAGE
from webhook.state import StateBuilder

LIMITS = DecisionLimits()
MAX_BYTES = 64 * 1024
MAX_LINES = 300_000  # executed lines after which `is_out_of_time` returns True; a line takes about 0.05 µs
MAX_UNCHARGED_LINES = 130_000  # executed lines between two charges


def example_state():
    """Return the state of the example cluster, with the stock."""
    builder = StateBuilder(Source(str(EXAMPLES / "configuration.yaml")).current, keys=(b"k" * 32,))
    for document in manifests.read([EXAMPLES / "fleet"]):
        if kind := resource_of(document.object):
            builder.update_objects([convert(document.object, kind.type)])
    builder.settle()
    return builder.state(fresh=True)


STATE = example_state()


def claim_with_constraints(constraints):
    claim = selecting_claim("true", requests=4)
    claim["spec"]["devices"]["constraints"] = [
        {"matchAttribute": f"a/b{i}", "requests": [f"r{i % 4}"]} for i in range(constraints)
    ]
    return claim


CLAIM = "resource.k8s.io/resourceclaims"
# Reviews of about `MAX_BYTES`.
MORE_REVIEWS = {
    "containers": ("mutate", lambda: review(crowded_pod(containers=650))),
    "init containers": ("mutate", lambda: review(crowded_pod(init=650))),
    "MIG keys": ("mutate", lambda: review(crowded_pod(limits={f"nvidia.com/mig-{i % 7 + 1}g.{i}gb": "1" for i in range(1_500)}))),
    "claims": ("mutate", lambda: review(crowded_pod(resourceClaims=[{"name": f"c{i}", "resourceClaimTemplateName": f"t{i}"} for i in range(900)]))),
    "terms of an affinity": ("mutate", lambda: review(crowded_pod(affinity=required_affinity(*(expression(f"l{i}", "In", "x") for i in range(700)))))),
    "tolerations": ("mutate", lambda: review(crowded_pod(tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(1_200)]))),
    "keys of two dialects": ("mutate", lambda: review(crowded_pod(limits={"koordinator.sh/gpu": "100", "rdma/hca": "1"}, containers=250))),
    "models": ("mutate", lambda: review(crowded_pod(limits=GPU, containers=300, annotations={"nvidia.com/use-gputype": ",".join(f"A{i}" for i in range(3_000))}))),
    "a record in both objects of an update": ("mutate", lambda: update_with_record(700)),
    "requests": ("validate", lambda: review(selecting_claim("device.driver != 'x'", requests=350), kind=CLAIM)),
    "constraints": ("validate", lambda: review(claim_with_constraints(1_250), kind=CLAIM)),
    "a selector": ("validate", lambda: review(selecting_claim("||".join(["device.driver == 'x'"] * 2_000)), kind=CLAIM)),
}  # fmt: skip


def update_with_record(containers):
    record = json.dumps({"containers": {f"c{i}": GPU for i in range(containers)}})
    annotated = crowded_pod(containers=containers // 4, annotations={"drawbridge.dev/original": record})
    return review(annotated, operation="UPDATE", old=annotated)


def is_inline(body):
    return len(body) <= MAX_BYTES and count_members(body) <= LIMITS.members // 2


class LineCounter:
    """Counts the executed lines, and finds the largest number of lines between two charges."""

    def __init__(self):
        self.total = self.longest = self.last_charge = 0

    def trace(self, frame, event, _):
        if event == "call" and frame.f_code is Budget.charge.__code__:
            self.longest = max(self.longest, self.total - self.last_charge)
            self.last_charge = self.total
            return None
        self.total += event == "line"
        return self.trace

    def skip(self, work):
        """Return a function that does the work without counting its lines."""

        def uncounted(*args, **kwargs):
            sys.settrace(None)
            try:
                return work(*args, **kwargs)
            finally:
                sys.settrace(self.trace)

        return uncounted

    def measure(self, work):
        earlier_trace = sys.gettrace()
        sys.settrace(self.trace)
        try:
            return work()
        finally:
            sys.settrace(earlier_trace)
            self.longest = max(self.longest, self.total - self.last_charge)


@pytest.fixture(scope="module", autouse=True)
def import_and_compile():
    """Import and compile everything before the tests, so that the tests do not count it."""
    cel.compile(WHOLE_LANGUAGE)
    admission.decide_review("mutate", review(crowded_pod()), STATE)


def test_reviews_that_cost_most_are_decoded_once():
    """A review that is tried at once, and then in its turn, is decoded twice."""
    dear = (REVIEWS | CORPUS | MORE_REVIEWS)["as many mig keys as the limits allow"][1]()
    assert len(dear) > LIMITS.small


@pytest.mark.whole
@every("name", REVIEWS | CORPUS | MORE_REVIEWS)
def test_a_decision_executes_few_lines_between_two_charges(name, monkeypatch):
    path, make = (REVIEWS | CORPUS | MORE_REVIEWS)[name]
    body, lines = make(), LineCounter()
    if not is_inline(body):
        return
    STATE.memo.clear()

    def answer():
        with suppress(ReviewError):
            assert admission.decide_review(
                path,
                body,
                STATE,
                is_out_of_time=lambda: lines.total > MAX_LINES,
                max_call_steps=LIMITS.at_once * 400_000,
            ).body

    with monkeypatch.context() as patches:
        patches.setattr(cel, "compile", lines.skip(cel.compile))
        lines.measure(answer)
    assert lines.longest < MAX_UNCHARGED_LINES, f"{lines.longest} lines of {lines.total}"
