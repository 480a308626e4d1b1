"""The status of a DeviceCompatibility: how many devices of the fleet it applies to, and what is wrong with it.

A page (a ResourceSlice as the allocator reads it) never changes, so a caller that keeps the `PageCoverage` of each page evaluates only new
pages. `drawbridge check` reports more about the rule's devices (`dra.validation.fleet`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from dra import step_limits, validation
from dra.budget import Budget
from dra.cel import view_of
from dra.errors import OutOfBudget, SelectorError
from dra.objects import CompatibilityFinding, DeviceCompatibilityStatus
from dra.policy import COUNTER_SET, NODE, Rules
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.cel import Selector
    from dra.objects import Device, DeviceCompatibility
    from dra.policy import CompatibilityRule
    from dra.stock import Page

MAX_FINDINGS: Final = 8
_LONGEST: Final = 512  # characters of a message
_RULE_PATH = "/spec/compatibleOnlyWith"


class PageCoverage(msgspec.Struct, frozen=True):
    """The devices of one page that a rule applies to, by the rule's scope: a pool, a counter set of it, or a node."""

    carriers: int
    permitted: dict[str, str]  # scope → a device that the rule applies to and permits
    refused: dict[str, str]  # scope → a device that the rule applies to and does not permit
    failing: str = ""  # the first device on which an expression failed, and the error
    # The first device that is not bound to one node; a rule of scope Node does not apply to such a device.
    on_no_single_node: str = ""


def rule_of(compatibility: DeviceCompatibility) -> CompatibilityRule:
    [rules] = Rules([compatibility]).by_driver.values()
    return rules[0]


def coverage_of(rule: CompatibilityRule, page: Page) -> PageCoverage:
    """Return the devices of a page to which a rule applies, and which of them it permits."""
    budget = Budget(step_limits.RULE_PAGE)
    driver = page.pool[0]
    carriers = 0
    permitted: dict[str, str] = {}
    refused: dict[str, str] = {}
    failing = on_no_single_node = ""
    for device in page.devices:
        if rule.picks is not None:
            applies, problem = _ask(rule.picks, driver, device, budget)
            failing = failing or problem
            if not applies and not problem:  # if the selector fails on a device, the rule applies to the device
                continue
        node = page.slice.spec.node_of(device)
        if not node and rule.scope == NODE:
            on_no_single_node = on_no_single_node or device.name
            continue
        carriers += 1
        if not rule.restricts:
            continue
        is_permitted, problem = _ask(rule.permits, driver, device, budget)
        failing = failing or problem
        scopes = [f"pool {page.pool[1]!r}"]
        if rule.scope == NODE:
            scopes = [f"node {node!r}"]
        elif rule.scope == COUNTER_SET:
            scopes = [
                f"counter set {consumes_counter.counter_set!r} of {scopes[0]}"
                for consumes_counter in device.consumes_counters
            ]
        for scope in scopes:
            (permitted if is_permitted else refused).setdefault(scope, device.name)
    return PageCoverage(carriers, permitted, refused, failing, on_no_single_node)


def status_of(
    compatibility: DeviceCompatibility, coverage: Iterable[tuple[Page, PageCoverage]]
) -> DeviceCompatibilityStatus:
    """Return the status of a rule from the coverage of all pages of its driver."""
    spec = compatibility.spec
    carriers = 0
    failing = on_no_single_node = ""
    permitted: dict[str, str] = {}
    refused: dict[str, str] = {}
    for page, covered in coverage:
        carriers += covered.carriers
        failing = failing or covered.failing
        on_no_single_node = on_no_single_node or (
            covered.on_no_single_node and f"{covered.on_no_single_node!r} of pool {page.pool[1]!r}"
        )
        permitted |= covered.permitted
        refused |= covered.refused
    value = {
        "apiVersion": compatibility.api_version,
        "kind": compatibility.kind,
        "metadata": {"name": compatibility.metadata.name},
        "spec": msgspec.json.decode(encode(spec)),
    }
    problems = [problem for problem in validation.problems(value) if problem.path.startswith("/spec")]
    findings = [_finding(problem.code, problem.path, problem.message) for problem in problems]
    if not carriers:
        where = "/spec/selector" if spec.selector else "/spec/driver"
        findings.append(_finding("D503", where, f"no published device of {spec.driver!r} has the rule"))
    if on_no_single_node:
        text = f"{on_no_single_node} is on no single node, so the rule does not apply to it"
        findings.append(_finding("D508", "/spec/scope", text))
    if failing:
        findings.append(_finding("D505", _RULE_PATH, f"it fails, which permits nothing: {failing}"))
    if contradictory_scopes := sorted(permitted.keys() & refused.keys()):
        permitted_device, refused_device = permitted[contradictory_scopes[0]], refused[contradictory_scopes[0]]
        text = (
            f"the rule contradicts itself: it applies to {permitted_device!r} and to {refused_device!r} of {contradictory_scopes[0]}, but permits "
            f"only {permitted_device!r} beside others, so {refused_device!r} can be used with none of them"
        )
        findings.append(_finding("D501", _RULE_PATH, text))
    return DeviceCompatibilityStatus(
        observed_generation=compatibility.metadata.generation,
        devices=carriers,
        findings=tuple(findings[:MAX_FINDINGS]),
    )


def _ask(selector: Selector | None, driver: str, device: Device, budget: Budget) -> tuple[bool, str]:
    """Return the result of an expression on a device, and the error. For an expression that does not compile, return False and no error."""
    if selector is None:
        return False, ""
    try:
        return selector.matches(view_of(driver, device), budget), ""
    except SelectorError as error:
        return False, f"on {device.name!r}: {error}"
    except OutOfBudget:
        return False, f"on {device.name!r}: it takes too long to evaluate"


def _finding(code: str, path: str, message: str) -> CompatibilityFinding:
    return CompatibilityFinding(code=code, path=path, message=message[:_LONGEST])
