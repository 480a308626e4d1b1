"""Compares our allocator's answers with those of the oracle, a program around Kubernetes' own allocator.

A case with different answers is shrunk to the smallest one that still has different answers.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from allocator import NodeAnswer, SearchOptions, allocate
from allocator.one_node import DEFAULTS
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.objects.own_kinds import DeviceCompatibility
from dra.objects.taint import DeviceTaintRule
from dra.stock.stock import Stock
from dra.wire import convert, encode
from tests.allocator.servers import server_of_case

Case = dict[str, Any]


def stock_of(case: Case) -> Stock:
    """Return the stock (all objects that the allocator reads) of a case."""
    return Stock.of(
        nodes=[convert(case["node"], Node)],
        slices=[convert(slice_, ResourceSlice) for slice_ in case["slices"]],
        classes=[convert(class_, DeviceClass) for class_ in case["classes"]],
        rules=[convert(rule, DeviceTaintRule) for rule in case.get("deviceTaintRules", ())],
        compatibilities=[
            convert(compatibility, DeviceCompatibility) for compatibility in case.get("compatibilities", ())
        ],
        claims=[convert(claim, ResourceClaim) for claim in case.get("allocatedClaims", ())],
        server=server_of_case(case),
    )


def ours(case: Case, options: SearchOptions = DEFAULTS) -> NodeAnswer:
    """Return our allocator's answer to a case."""
    claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
    return allocate(stock_of(case), case["node"]["metadata"]["name"], claims, options=options)


def difference(answer: NodeAnswer, their_answer: Case) -> str | None:
    """Return the difference between our answer and the oracle's; None if the answers agree or the oracle was too slow."""
    if their_answer["verdict"] == "timeout":
        return None
    if answer.verdict.value != their_answer["verdict"]:
        return f"verdict: ours {answer.verdict.value} ({answer.error}), theirs {their_answer['verdict']} ({their_answer.get('error')})"
    if answer.error and answer.node_only != bool(their_answer.get("nodeOnly")):
        return f"error is for one node only: ours {answer.node_only}, theirs {their_answer.get('nodeOnly')} ({their_answer.get('error')})"
    our_allocations = [_plain(json.loads(encode(allocation.allocation))) for allocation in answer.allocations]
    their_allocations = [_plain(allocation) for allocation in their_answer.get("allocations") or []]
    return (
        None
        if our_allocations == their_allocations
        else f"allocations:\n  ours   {our_allocations}\n  theirs {their_allocations}"
    )


def _plain(value: Any) -> Any:
    """Remove empty values, and hide share IDs, which are random."""
    if isinstance(value, dict):
        plain = {key: _plain(member) for key, member in value.items()}
        if "shareID" in plain:
            plain["shareID"] = "some"
        return {key: member for key, member in plain.items() if member not in (None, [], {}, "", False)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def shrink(case: Case, disagrees: Callable[[Case], bool]) -> Case:
    """Remove parts of a case for as long as the answers to the rest still differ."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller_cases(case):
            try:
                still_disagrees = disagrees(smaller)
            except Exception:  # noqa: BLE001 - a case that our allocator or the oracle cannot read is no smaller case
                still_disagrees = False
            if still_disagrees:
                case, progress = smaller, True
                break
    return case


def _smaller_cases(case: Case) -> Iterator[Case]:
    for path in sorted(_paths(case), key=len):
        copied = copy.deepcopy(case)
        parent = copied
        for step in path[:-1]:
            parent = parent[step]
        del parent[path[-1]]
        yield copied


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the parts that can be removed from a case."""
    required_keys = {"node", "slices", "classes", "claims", "metadata", "name", "driver", "pool", "spec", "cel"}
    required_keys |= {"exactly", "resourceSliceCount", "allocationMode", "value", "deviceClassName"}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        if key in ("server", "without"):  # these two fields describe one server and must agree
            continue
        if not (isinstance(key, str) and key in required_keys):
            yield (*path, key)
        yield from _paths(member, (*path, key))


def disagreement(oracle: Any, case: Case, answer: NodeAnswer, their_answer: Case) -> str:
    """Shrink a case with different answers; return the difference, and the smallest case as JSON."""

    def still_differs(smaller: Case) -> bool:
        our_smaller_answer, their_smaller_answer = ours(smaller), oracle.ask(**smaller)
        verdicts = our_smaller_answer.verdict, their_smaller_answer["verdict"]
        same_verdicts = verdicts == (answer.verdict, their_answer["verdict"])
        return same_verdicts and difference(our_smaller_answer, their_smaller_answer) is not None

    smallest = shrink(case, still_differs)
    return f"{difference(ours(smallest), oracle.ask(**smallest))}\n{json.dumps(smallest)}"


def easier_cases(case: Case) -> Iterator[Case]:
    """Yield easier and easier cases: with fewer claims, then with fewer requests, then with smaller counts."""
    while True:
        case = copy.deepcopy(case)
        claim = case["claims"][-1]
        requests = claim["spec"]["devices"].get("requests", [])
        if len(case["claims"]) > 1:
            case["claims"].pop()
        elif len(requests) > 1:
            removed = requests.pop()["name"]
            for kind in ("constraints", "config"):
                for entry in claim["spec"]["devices"].get(kind, []):
                    if entry.get("requests"):
                        kept = [name for name in entry["requests"] if name.partition("/")[0] != removed]
                        entry["requests"] = kept or [requests[0]["name"]]
        elif requests and any(body.get("count", 1) > 1 for body in _bodies(requests[0])):
            for body in _bodies(requests[0]):
                if body.get("count", 1) > 1:
                    body["count"] -= 1
        else:
            return
        yield case


def _bodies(request: Case) -> list[Case]:
    return request.get("firstAvailable") or [request["exactly"]]
