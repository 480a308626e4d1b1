"""The pages: the fleet, waiting pods, quotas, the move to DRA, the history, and one pod, claim, device, node or namespace."""

from __future__ import annotations

from collections import defaultdict
from math import ceil
from statistics import mean
from typing import TYPE_CHECKING

from allocator.strategies import DEFAULT
from analysis import explain
from analysis.capacity import PLUGIN, STATE_TEXTS, cards_of, totals
from analysis.errors import MissingObject
from analysis.matrix import group_equal, report
from analysis.naming import find_device
from analysis.quota_use import tables
from analysis.redaction import Redaction
from analysis.report import Rows
from analysis.simulated import devices_of
from cluster.manifests import dump
from dashboard import api
from dashboard.colours import CHOICES, STATE, Colours, attributes_of, colours_of
from dashboard.hardware import hardware_of
from dashboard.hardware import page_of as to_scale
from dashboard.history import page_of as history_of
from dashboard.html import (
    Html,
    area,
    bar,
    cell,
    concatenated,
    el,
    lines,
    link,
    part_as_html,
    table,
    text_of_counts,
)
from dashboard.lines import draw
from dashboard.move import mechanisms_of, page_of
from dashboard.picture import count_devices, devices_by_namespace, labels_of, reading_of, shelves
from dashboard.timeline import age, steps_of, steps_of_claim
from dashboard.waiting import by_cause, pod_story
from dashboard.whatif import EXAMPLE, WhatIfQuestion
from dra.quantity import Quantity
from dra.raw import moment
from dra.texts import count_of, list_first
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from analysis.capacity import Card, Holder, NodeDevices, Total
    from analysis.quota_use import QuotaReport
    from analysis.survey import Overview
    from dashboard.history import Sample
    from dashboard.lines import Line
    from dashboard.picture import DashboardView, Shelf
    from dashboard.timeline import TimelineStep
    from dashboard.waiting import Waiting
    from dashboard.whatif import WhatIf
    from dra.objects import Pod, ResourceClaim

NODES_A_PAGE = 100
NODES_DRAWN = 200  # a larger fleet is drawn as a tile for each group of nodes
_CELLS = 6000  # drawn for each product on a page of nodes
_QUEUE, _WORDS = 12, 12  # waiting pods on the first page, and words of their reasons
_PODS_OF_A_REASON = 20
_REASONS = 50
_FAULTS = 10
# The most that is shown: holders of a device, names in a list, lines of a command's output.
_HOLDERS, _NAMED, _LINES = 20, 5, 400
_NAMESPACES = 12
_OFFERS = 10  # waiting pods that the page What if offers
_AGAIN = 30  # seconds after which a page reloads if it runs no script, or if its event stream has failed
_NAV = (
    ("Fleet", ""),
    ("Waiting", "waiting"),
    ("Quota", "quota"),
    ("Together", "together"),
    ("Move", "move"),
    ("History", "history"),
    ("What if", "what-if"),
    ("JSON", "api"),
)


def layout(title: str, view: DashboardView | None, *content: object, current: str = "-", again: bool = True) -> Html:
    """Return a page with header and footer. With `again` the page reloads itself."""
    links = [el("a", word, href=f"/{path}", aria_current="page" if path == current else "") for word, path in _NAV]
    search_form = el(
        "form",
        el("input", name="q", type="search", placeholder="pod, claim, node", aria_label="Find a pod, claim or node"),
        el("button", "Find"),
        action="/find",
    )
    head = el("header", el("strong", "drawbridge"), el("nav", *links, aria_label="Pages"), search_form)
    notices: list[object] = []
    if view is not None:
        if view.problem:
            notices.append(el("p", f"This page is out of date: {view.problem}", class_="warn", role="alert"))
        if view.notice:
            notices.append(el("p", view.notice, class_="warn"))
        unread = [f"{missed.kind}: {missed.reason}" for missed in view.picture.unread]
        if unread:
            notices.append(
                el("p", f"These kinds could not be read, so objects may be missing: {'; '.join(unread)}", class_="warn")
            )
        refreshed = " This page is kept up to date." if again else ""
        configured = "" if view.reading.in_force.is_default else f" {view.reading.in_force.sentence()}."
        source = f"Read at {view.picture.read_at} from {view.picture.source}.{refreshed}{configured} The dashboard writes nothing."
        account = ""
        if view.viewer:
            account_text = f"Logged in as {view.viewer}. For namespaces that you may not read, the pages show only which devices they hold."
            account = el("form", el("span", account_text), el("button", "Log out"), action="/logout", method="post")
        foot = el("footer", el("span", source), account)
    else:
        foot = el("footer", "The dashboard writes nothing.")
    skip_link = el("a", "Skip to the content", href="#content", class_="skip")
    reading_attribute = {"data_reading": reading_of(view)} if view is not None else {}
    # `main` can have the focus: the skip link sets it, and the script does when an update removes the focused element.
    body = el(
        "body",
        skip_link,
        head,
        el("main", *notices, el("h1", title), *content, id="content", tabindex="-1", **reading_attribute),
        foot,
    )
    reload_elements: tuple[Html, ...] = ()
    if again:
        without_script = el("noscript", el("meta", http_equiv="refresh", content=_AGAIN))
        reload_elements = without_script, el("script", src="/script.js", defer="defer", data_again=_AGAIN)
    head_element = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("link", rel="stylesheet", href="/style.css"),
        *reload_elements,
        el("title", f"{title} · drawbridge"),
    )
    return Html("<!doctype html>\n" + el("html", head_element, body, lang="en"))


def what_if(view: DashboardView, question: WhatIfQuestion, answer: WhatIf | None, problem: str) -> Html:
    """Return the page with the form for a what-if question about pods and nodes, and with the answer, if there is one."""
    manifest_field = area(question.text, name="manifest", id="manifest", rows=14, spellcheck="false")
    remove_field = el("input", name="remove", id="remove", value=" ".join(question.removed), placeholder="node-1 node-2", spellcheck="false")  # fmt: skip
    add_field = el(
        "input", name="add", id="add", value=" ".join(question.added), placeholder="node-1=10", spellcheck="false"
    )
    form = el(
        "form",
        el("label", "Pods or workloads, as for kubectl apply", for_="manifest"),
        manifest_field,
        el("label", "Remove these nodes: their pods are placed again", for_="remove"),
        remove_field,
        el("label", "Add N idle nodes like NODE, as NODE=N: waiting pods are placed, too", for_="add"),
        add_field,
        el("button", "What would happen?"),
        action="/what-if",
        method="post",
        class_="tall",
    )
    parts: list[object] = [el("p", problem, class_="warn", role="alert")] if problem else []
    if answer is not None:
        rows: list[Sequence[object]] = []
        for pod in answer.pods:
            if pod.node:
                rows.append((pod.pod, link(pod.node, "nodes", pod.node), _lines(devices_of(pod))))
            else:
                rows.append((pod.pod, "no node", str(pod.reason)))
        summary = f"{answer.placed} of {count_of(len(answer.pods), 'pod')} would fit ({DEFAULT}); nothing was created."
        left_out = f" {count_of(answer.left, 'more waiting pod')} left out." if answer.left else ""
        parts += [el("p", summary, left_out, " ", link("A link to this question", "what-if", **question.as_query()))]
        parts += [table(("Pod", "Node", "Devices, or why not"), rows)] if rows else []
        quotas = [
            (quota.line, "over the limit" if quota.exceeded else "within the limit")
            for quota in answer.quotas[:NODES_A_PAGE]
        ]
        parts += [el("h2", "Quotas that count these pods"), table(("Line", ""), quotas)] if quotas else []
    offers = _offers(view) if question.is_empty else ()
    return layout("What if", view, *parts, form, *offers, current="what-if", again=False)


def _offers(view: DashboardView) -> Iterator[Html]:
    """Link to questions about an example and about pods that wait."""
    yield el("h2", "Questions to start with")
    questions = [("an example: a pod that requests nvidia.com/gpu", EXAMPLE)]
    questions += [
        (f"{row.pod}, which waits", _manifest(view.reading.pods[row.pod], view))
        for row in view.picture.waiting[:_OFFERS]
    ]
    offers = [link(text, "what-if", **WhatIfQuestion(manifest).as_query()) for text, manifest in questions]
    yield el("ul", *(el("li", offer) for offer in offers))


def _lines(texts: Iterable[str]) -> Html:
    """Put each text on a separate line."""
    return concatenated(part for text in texts for part in (text, el("br")))


def login(problem: str) -> Html:
    """Return the page with the form for a token."""
    field = el("input", name="token", id="token", type="password", autocomplete="off", required="required")
    form = el("form", el("label", "Token", for_="token"), field, el("button", "Log in"), action="/login", method="post")
    hint = el("p", "A bearer token of this cluster, such as ", el("code", "kubectl create token NAME -n NAMESPACE"), " prints. You see the objects that its account may list.")  # fmt: skip
    alerts = [el("p", problem, class_="warn", role="alert")] if problem else []
    return layout("Log in", None, *alerts, form, hint, again=False)


def fleet(view: DashboardView, label: str | None, shelf: str | None, at: int, colour: str = STATE) -> Html:
    """Return the page of all devices: the nodes grouped by the value of a label ("shelves"), or the nodes with one value (`shelf`)."""
    picture, reading = view.picture, view.reading
    if not picture.nodes:
        hint = "Drivers publish devices as ResourceSlices: `kubectl get resourceslices` lists them, and docs/install.md says which driver to install."
        return layout("No devices", view, el("p", hint), *_queue(view), current="")
    labels, is_small = labels_of(reading, picture.nodes), len(picture.nodes) <= NODES_DRAWN
    by = label if label is not None else next(iter([] if is_small else labels), "")
    colours = colours_of(picture.nodes, colour, reading)
    colour_query = {"colour": colours.by} if colours.by != STATE else {}
    coloured = colours.counts(picture.nodes)
    legend = [el("li", cell(state), f"{meaning}, {coloured.get(state, 0):,}") for state, meaning in colours.legend()]
    drawn: list[object] = [
        _choice(labels, by, colours.by, attributes_of(reading.stock)),
        el("ul", *legend, class_="legend"),
    ]
    groups = shelves(reading, picture.nodes, by)
    if shelf is not None:
        nodes = next((group.nodes for group in groups if group.value == shelf or not by), [])
        drawn += [el("h2", f"{by}: {shelf}" if by else "All nodes"), el("p", link("All of the fleet", "", by=by, **colour_query))]  # fmt: skip
        drawn += _nodes(view, nodes, at, colours, {"by": by, "shelf": shelf, **colour_query})
    elif is_small:
        for group in groups:
            drawn += [el("h3", link(group.value, "", by=by, shelf=group.value, **colour_query))] if by else []
            drawn += _nodes(view, group.nodes, 0, colours, {})
    else:
        drawn.append(el("ul", *(_tile(group, colours, {"by": by, **colour_query}) for group in groups), class_="heat"))
    picture_and_queue = el("div", el("section", el("h2", "Nodes"), *drawn), *_queue(view), class_="beside")
    parts = [*_headline(view, totals(picture.nodes)), picture_and_queue]
    if view.faults:
        names = {node.node for node in picture.nodes}
        faults = [
            (el("b", fault.severity, class_=fault.severity), _object_link(view, fault.object, names), fault.message, fault.remedy)
            for fault in view.faults
        ]  # fmt: skip
        command = el("p", "The same on a terminal: ", el("code", "drawbridge doctor"), class_="soft")
        parts += [
            el("h2", "Faults", id="faults"),
            table(("Severity", "Object", "What is wrong", "Remedy"), faults, _FAULTS),
            command,
        ]
    holders = [(link(name, "namespaces", name), number) for name, number in devices_by_namespace(picture).items()]
    if holders:
        head = ("Namespace", "Devices, partitions and shares")
        parts += [el("h2", "Who holds devices"), table(head, holders, _NAMESPACES)]
    return layout("Fleet", view, *parts, current="")


def _headline(view: DashboardView, all_totals: Sequence[Total]) -> Iterator[Html]:
    """Show how many devices there are, then the same by product."""
    devices = sum(total.total for total in all_totals)
    unusable = sum(sum(total.unusable.values()) for total in all_totals)
    figures = [
        (f"{len(view.picture.nodes):,}", "nodes with devices"),
        (f"{sum(total.used for total in all_totals):,} of {devices:,}", "devices in use"),
        (f"{sum(total.free for total in all_totals):,}", "devices free"),
        (f"{unusable:,}" if unusable else "", "devices not usable"),
        (f"{len(view.picture.waiting):,}", "pods waiting"),
        (el("a", len(view.faults), href="#faults") if view.faults else "", "faults"),
    ]
    yield el("ul", *(el("li", el("b", number), el("span", word)) for number, word in figures if number), class_="tiles")
    products: list[Html] = []
    for total in all_totals:
        parts = {
            "held": total.used,
            "free": total.free,
            "unusable": sum(total.unusable.values()),
            "unknown": total.unknown,
        }
        amounts = (f"{name}: {used} of {total.capacity[name]}" for name, used in total.used_capacity.items())
        details = ", ".join(filter(None, (total.name if total.model else "", *amounts, _reasons(total))))
        heading = el("b", total.model or total.name), f" {total.used:,} of {total.total:,} used"
        products.append(el("li", *heading, bar(parts, text_of_counts(parts)), el("small", details)))
    yield el("ul", *products, class_="products")


def _reasons(total: Total) -> str:
    return ", ".join(f"{number:,} {why}" for why, number in total.unusable.items())


def _tile(group: Shelf, colours: Colours, query: Mapping[str, str]) -> Html:
    """Draw a group of nodes as a tile, in a colour that shows how much is used."""
    counts = colours.counts(group.nodes)
    group_totals = [total for node in group.nodes for total in node.totals]
    used = sum(total.used for total in group_totals) / (sum(total.total for total in group_totals) or 1)
    heading = link(group.value, "", shelf=group.value, **query)
    size = f"{used:.0%} used, {count_of(len(group.nodes), 'node')}"
    words = colours.words(counts)
    return el("li", heading, el("b", size), bar(counts, words), el("small", words), class_=f"heat{ceil(5 * used)}")


def _queue(view: DashboardView) -> Iterator[Html]:
    """List the waiting pods, the worst first, in one line each."""
    waiting_pods = [row for rows in by_cause(view.picture.waiting) for row in rows]
    if not waiting_pods:
        return
    items = [el("li", el("code", row.code), " ", link(row.pod, "pods", *row.pod.split("/", 1)), " ", _age(row.since, view), " ", el("small", _shortened(row.reason))) for row in waiting_pods[:_QUEUE]]  # fmt: skip
    more = link("All waiting pods, with remedies", "waiting")
    yield el("section", el("h2", "Waiting"), el("ol", *items, class_="queue"), el("p", more))


def _shortened(text: str) -> str:
    words = text.split()
    return f"{' '.join(words[:_WORDS])} …" if len(words) > _WORDS else text


def _age(at: str, view: DashboardView) -> Html:
    return el("time", age(at, moment(view.picture.read_at)), datetime=at, title=at)


def _object_link(view: DashboardView, reference: str, nodes: Container[str]) -> object:
    """Link to the page of the object Kind/namespace/name, if the object has a page. `nodes` are the nodes with a page."""
    kind, _, key = reference.partition("/")
    match kind:
        case "Pod" if key in view.reading.pods:
            return link(reference, "pods", *key.split("/", 1))
        case "ResourceClaim" if key in view.reading.stock.claims:
            return link(reference, "claims", *key.split("/", 1))
        case "Node" if key in nodes:
            return link(reference, "nodes", key)
    return reference


def _choice(labels: Sequence[str], by: str, colour: str, attributes: Sequence[str]) -> Html:
    options = [
        el("option", label or "no label", value=label or " ", selected="selected" if label == by else "")
        for label in (*labels, "")
    ]
    colours = [
        el("option", attribute, selected="selected" if attribute == colour else "")
        for attribute in (*CHOICES, *attributes)
    ]
    return el(
        "form",
        el("label", "By the label", for_="by"),
        el("select", *options, name="by", id="by"),
        el("label", "coloured by", for_="colour"),
        el("select", *colours, name="colour", id="colour"),
        el("button", "Show"),
        action="/",
    )


def _nodes(
    view: DashboardView, nodes: Sequence[NodeDevices], at: int, colours: Colours, query: Mapping[str, str]
) -> Iterator[Html]:
    """Draw nodes as cards; with a query, one page of them."""
    shown = nodes[at : at + NODES_A_PAGE] if query else nodes
    most = _CELLS // max(len(shown), 1)
    cards = [el("li", link(node.node, "nodes", node.node), *_cells(view, node, colours, most)) for node in shown]
    yield el("ul", *cards, class_="nodes")
    if len(nodes) > len(shown):
        steps: list[object] = []
        for first in range(0, len(nodes), NODES_A_PAGE):
            number = first // NODES_A_PAGE + 1
            steps += [el("b", number) if first == at else link(number, "", **query, at=str(first)), " "]
        yield el("p", f"{len(nodes):,} nodes, pages: ", concatenated(steps))


def _cells(view: DashboardView, node: NodeDevices, colours: Colours, most: int) -> Iterator[Html]:
    """Draw the devices of a node by product, each as a cell, and at most so many of a product."""
    cards = list(cards_of([node]))
    is_shared = colours.by == STATE and any(card.state == "shared" for card in cards)
    free = {unit.name: unit.free for unit in hardware_of(view.reading.stock, node.node)} if is_shared else {}
    products: defaultdict[tuple[str, str], list[Html]] = defaultdict(list)
    for card in cards:
        first = next((device for device in card.devices if device.holders), card.devices[0])
        used = _used_percentage(card, free) if card.state == "shared" else 0
        path: tuple[str, ...] = ()
        if card.holders:
            path = ("nodes", node.node) if card.state == PLUGIN else ("devices", *first.device.split("/"))
        cells = products[card.product]
        drawn = cell(colours.css_class(card), _title(card), *path, used=used)
        cells += [drawn] * min(card.number, most - len(cells))
    for total in node.totals:
        cells = products[total.name, total.model]
        left = [el("span", f"and {total.total - len(cells):,} more")] if total.total > len(cells) else []
        unusable = _reasons(total)
        yield el(
            "small",
            f"{total.model or total.name}: {total.used:,} of {total.total:,} used{unusable and f', {unusable}'}",
        )
        yield el("div", *cells, *left, class_="cells")


def _used_percentage(card: Card, free: Mapping[str, float]) -> int:
    """Return the used part of a card from the free parts of hardware by name. If several drivers publish the card, the highest counts."""
    by_driver: defaultdict[str, list[float]] = defaultdict(list)
    for name in {name for device in card.devices for name in (device.device, device.card) if name in free}:
        by_driver[name.partition("/")[0]].append(1 - free[name])
    return round(100 * max(map(mean, by_driver.values()), default=0))


def _title(card: Card) -> str:
    holders = [list_first(holder.pods, _NAMED) or f"claim {holder.claim}" for holder in card.holders]
    device = card.devices[0]
    name = device.device if len(card.devices) == 1 else device.card or device.device
    return ", ".join(filter(None, (f"{name}: {card.state}", device.reason, list_first(holders, _NAMED))))


def node(view: DashboardView, name: str) -> Html | None:
    """Return the page of a node, with each of its devices; None if the node has no devices."""
    node_devices = next((node for node in view.picture.nodes if node.node == name), None)
    if node_devices is None:
        return None
    rows: list[Sequence[object]] = []
    for device in node_devices.devices:
        for holder in device.holders[:_HOLDERS] or (None,):
            device_link = (
                device.device if device.state == "plugin" else link(device.device, "devices", *device.device.split("/"))
            )
            share = "" if holder is None else ", ".join(f"{key}={amount}" for key, amount in holder.share.items())
            holder_links = "" if holder is None else _links_of(view, holder)
            state = concatenated(
                (
                    cell(device.state, STATE_TEXTS.get(device.state, "")),
                    " ",
                    f"{device.state}: {device.reason}" if device.reason else device.state,
                )
            )
            rows.append(
                (device_link, state, holder_links, share, _age(holder.since, view) if holder else "", device.model)
            )
        if len(device.holders) > _HOLDERS:
            rows.append(("", "", f"and {len(device.holders) - _HOLDERS:,} more", "", "", ""))
    together_link = link("Which devices can be used together", "nodes", name, "together")
    body = (
        *_cells(view, node_devices, Colours(STATE, {}), _CELLS),
        el("p", text_of_counts(count_devices([node_devices])), ". ", together_link),
        table(("Device", "State", "Holder", "Share", "Age", "Model"), rows),
        *to_scale(hardware_of(view.reading.stock, name)),
    )
    return layout(f"Node {name}", view, *body)


def combinations(view: DashboardView, name: str = "") -> Html | None:
    """Return the page that shows which devices of a node, or of the fleet, can be in use at the same time."""
    matrices = api.matrices(view, name)
    if matrices is None:
        return None
    matrix_report = report(group_equal(matrices))
    parts = [part_as_html(part) for part in matrix_report.parts]
    back = [el("p", "On node ", link(name, "nodes", name))] if name else []
    legend = el("p", matrix_report.summary, class_="soft")
    return layout(matrix_report.title, view, *back, *parts, legend, current="-" if name else "together")


def _links_of(view: DashboardView, holder: Holder) -> Html:
    """Link to the pods and the claim of a holder."""
    links = _holder_links(view, holder.pods, holder.claim)
    return concatenated((links, ", which no pod uses")) if holder.unused else links


def _holder_links(view: DashboardView, pods: Sequence[str], claim: str) -> Html:
    links = [
        link(pod, "pods", *pod.split("/", 1)) if pod in view.reading.pods else el("span", f"{pod} (does not exist)")
        for pod in pods[:_HOLDERS]
    ]
    if left := pods[_HOLDERS:]:
        links.append(el("span", f"{len(left):,} more"))
    if claim:
        links.append(concatenated(("claim ", link(claim, "claims", *claim.split("/", 1)))))
    return concatenated(part for at, holder in enumerate(links) for part in ((", ", holder) if at else (holder,)))


def waiting(view: DashboardView) -> Html:
    """Return the page of waiting pods, as one table, a row for each cause."""
    pods = view.picture.waiting
    if not pods:
        return layout("Waiting", view, el("p", "No pod that requests devices waits for a node."), current="waiting")
    return layout(f"{count_of(len(pods), 'pod')} waiting", view, *_by_reason(view, pods), current="waiting")


def _by_reason(view: DashboardView, waiting_pods: Sequence[Waiting]) -> Iterator[Html]:
    if unexplained := sum(not pod.actor for pod in waiting_pods):
        words = f"For {count_of(unexplained, 'pod')} only the scheduler's message is shown, because finding all reasons takes too many steps. The reason is on each pod's page."
        yield el("p", words, class_="warn")
    causes = by_cause(waiting_pods)
    rows: list[Sequence[object]] = []
    for first, *more in causes[:_REASONS]:
        degree = el("b", first.degree or first.severity, class_=first.severity)
        links = [link(row.pod, "pods", *row.pod.split("/", 1)) for row in (first, *more[: _PODS_OF_A_REASON - 1])]
        names: list[object] = [_lines(links[:_NAMED])]
        if len(links) > _NAMED:
            names.append(el("details", el("summary", f"and {1 + len(more) - _NAMED:,} more"), _lines(links[_NAMED:])))
        if len(more) >= _PODS_OF_A_REASON:
            names.append(el("p", f"/api/v1/waiting lists all {1 + len(more):,}", class_="soft"))
        why = concatenated((first.reason, el("br"), el("small", f"next: {first.actor or 'scheduler'}")))
        oldest = min(row.since for row in (first, *more))
        remedy = next(iter(first.remedies), "")
        rows.append((concatenated((degree, " ", first.code)), concatenated(names), why, remedy, _age(oldest, view)))
    yield table(("Degree", "Pods", "Why", "First remedy", "Age"), rows)
    if rest := causes[_REASONS:]:
        pods_left = count_of(sum(map(len, rest)), "pod")
        yield el("p", f"and {pods_left} for {len(rest):,} other reasons, which /api/v1/waiting lists", class_="soft")


def move(view: DashboardView, overview: Overview | None, problem: str, made_at: str = "") -> Html:
    """Return the page that shows how far the move from device plugins is."""
    parts = [el("p", problem, class_="warn")] if problem else []
    if made_at:
        parts.append(el("p", f"Surveyed at {made_at}.", class_="soft"))
    if overview is not None:
        parts += page_of(overview, mechanisms_of(view.reading.pods.values()))
    return layout("The move to DRA", view, *parts, current="move")


def history(view: DashboardView, samples: Sequence[Sample], begun: str, spans: Sequence[int]) -> Html:
    """Return the page with the use of the fleet since this process started, and links to the days that Prometheus has stored."""
    longer = [part for days in spans for part in (" ", link(f"{days} days", "history", days=str(days)))]
    more = [el("p", "From Prometheus:", *longer)] if longer else []
    return layout("History", view, *history_of(samples, begun), *more, current="history")


def history_of_days(view: DashboardView, days: int, lines: Sequence[Line], problem: str) -> Html:
    """Return the page with the use of the fleet that Prometheus has stored."""
    parts = [el("p", problem, class_="warn", role="alert")] if problem else []
    if not lines and not problem:
        parts.append(
            el("p", "Prometheus has no series of drawbridge: docs/operating.md#alerts has the scrape configuration.")
        )
    back = el("p", link("The last day", "history"), ", as this process has seen it")
    return layout(f"History of {count_of(days, 'day')}", view, *parts, *draw(lines), back, current="history")


def quota(view: DashboardView) -> Html:
    """Return the page of the DeviceQuotas, with what is left of each line."""
    if not view.picture.quotas:
        return layout(
            "Quota",
            view,
            el("p", "There is no DeviceQuota, so the use of devices is not limited (docs/configuration.md#quotas)."),
            current="quota",
        )
    return layout("Quota", view, *_quota_tables(view.picture.quotas, _HOLDERS), current="quota")


def _quota_tables(quotas: Sequence[QuotaReport], holders: int | None = None) -> Iterator[Html]:
    """Write the tables of quotas, with a bar for each line."""
    for quota in quotas[:NODES_A_PAGE]:
        for part in tables((quota,), holders):
            if not isinstance(part, Rows):
                yield part_as_html(part)
                continue
            bars = (_usage_bar(line.hard, line.used, line.pending) for line in quota.lines)
            rows = [(key, drawn, *cells) for (key, *cells), drawn in zip(part.rows, bars, strict=True)]
            yield part_as_html(Rows((part.head[0], "", *part.head[1:]), rows, part.title))
    if (left := len(quotas) - NODES_A_PAGE) > 0:
        yield el("p", f"and {left:,} more", class_="soft")


def _usage_bar(hard: str, used: str, pending: str) -> Html:
    """Draw the used and the pending part of an amount as a bar."""
    hard_amount, used_amount, pending_amount = (Quantity.parse(amount).nano for amount in (hard, used, pending))
    counts = {"held": used_amount, "given": pending_amount, "free": max(hard_amount - used_amount - pending_amount, 0)}
    return bar(counts, f"{used} of {hard} used{f', {pending} requested' if pending_amount else ''}")


def pod(view: DashboardView, key: str) -> Html | None:
    """Return the page of a pod: its claims, its timeline, and the output of `drawbridge explain`."""
    if key not in view.reading.pods:
        return None
    story = pod_story(key, view.reading)
    claims: list[Sequence[object]] = []
    for claim in story.claims:
        exists = claim.name in view.reading.stock.claims
        claim_link = link(claim.name, "claims", *claim.name.split("/", 1)) if exists else claim.name
        claims.append(
            (
                claim_link,
                claim.state.value,
                _age(claim.since, view),
                ", ".join(claimed.device for claimed in claim.devices),
            )
        )
    parts = [el("p", el("strong", story.state.reasons[0].text))]
    if claims:
        parts += [el("h2", "Claims"), table(("Claim", "State", "Age", "Devices"), claims)]
    if story.node:
        parts.append(el("p", "On node ", link(story.node, "nodes", story.node)))
    parts += _timeline(steps_of(view.reading.pods[key], view.reading), view)
    parts += _terminal_output(
        explain.screen_of_pod(story), f"drawbridge explain pod/{key.partition('/')[2]} -n {key.partition('/')[0]}"
    )
    return layout(f"Pod {key}", view, *parts, *_as_yaml(view.reading.pods[key], view))


def claim(view: DashboardView, key: str) -> Html | None:
    if key not in view.reading.stock.claims:
        return None
    story = explain.lone_claim_story(key, view.reading)
    command = f"drawbridge explain claim/{key.partition('/')[2]} -n {key.partition('/')[0]}"
    users = [el("p", "Pods: ", _holder_links(view, story.pods, ""))] if story.pods else []
    stored = view.reading.stock.claims[key]
    return layout(
        f"Claim {key}",
        view,
        *users,
        *_timeline(steps_of_claim(stored), view),
        *_terminal_output(explain.screen_of_claim(story), command),
        *_as_yaml(stored, view),
    )


def _timeline(steps: Iterable[TimelineStep], view: DashboardView) -> Iterator[Html]:
    now = moment(view.picture.read_at)
    rows = [(el("time", step.at, datetime=step.at), age(step.at, now), step.description) for step in steps]
    if rows:
        yield el("h2", "In time")
        yield table(("When", "Age", "What"), rows)
    events = view.events
    event_rows = [
        (el("time", event.at, datetime=event.at), age(event.at, now), f"{event.times} ×" if event.times > 1 else "", event.type, event.reason, event.message, event.source)
        for event in events.shown
    ]  # fmt: skip
    if event_rows:
        yield el("h2", "Events")
        yield table(("When", "Age", "Times", "Type", "Reason", "Message", "From"), event_rows)
    elif events.problem:
        yield el("p", f"The events could not be read: {events.problem}", class_="soft")


def _as_yaml(obj: Pod | ResourceClaim, view: DashboardView) -> Iterator[Html]:
    """Show the fields that decide about devices, as in a snapshot: without environment variables and arguments, which may hold passwords."""
    command = f"kubectl get {obj.kind.lower()} {obj.metadata.name} -n {obj.metadata.namespace} -o yaml"
    yield el(
        "details",
        el("summary", "YAML"),
        lines(_manifest(obj, view).splitlines()),
        el("p", "Only the fields that decide about devices. For all fields: ", el("code", command), class_="soft"),
    )


def _manifest(obj: Pod | ResourceClaim, view: DashboardView) -> str:
    document = {"apiVersion": obj.api_version, "kind": obj.kind} | builtins(obj)
    return dump([Redaction(view.reading.configuration).redact(document)])


def device(view: DashboardView, name: str) -> Html | None:
    try:
        story = explain.device_story(find_device(name, view.reading.stock), view.reading)
    except MissingObject:
        return None
    holders = [
        (
            _links_of(view, holder),
            _age(holder.since, view),
            ", ".join(f"{key}={amount}" for key, amount in holder.share.items()),
        )
        for holder in story.holders
    ]
    parts = [table(("Holder", "Age", "Share"), holders, NODES_A_PAGE)] if holders else []
    node_link = [el("p", "On node ", link(story.node, "nodes", story.node))] if story.node else []
    return layout(
        f"Device {name}",
        view,
        *node_link,
        *parts,
        *_terminal_output(explain.screen_of_device(story), f"drawbridge explain device/{name}"),
    )


def _terminal_output(output: Iterable[str], command: str) -> Iterator[Html]:
    yield el("h2", "In full")
    output_lines = list(output)
    left = len(output_lines) - _LINES
    yield lines([*output_lines[:_LINES], *([f"and {left:,} more lines"] if left > 0 else [])])
    yield el("p", "The same on a terminal: ", el("code", command), class_="soft")


def namespace(view: DashboardView, name: str) -> Html:
    """Return the page of a namespace: the devices that its pods hold, its waiting pods, and its quotas."""
    devices: defaultdict[tuple[str, tuple[str, ...], str], list[tuple[Holder, str]]] = defaultdict(list)
    for node in view.picture.nodes:
        for device in node.devices:
            for holder in device.holders:
                if (holder.claim or ",".join(holder.pods)).partition("/")[0] == name:
                    devices[holder.claim, holder.pods, node.node].append((holder, device.device))
    rows = [
        (
            _links_of(view, held[0][0]),
            list_first([device for _, device in held], _NAMED),
            link(node_name, "nodes", node_name),
            _age(held[0][0].since, view),
        )
        for (_, _, node_name), held in devices.items()
    ]
    parts: list[object] = [el("p", "Its pods hold no device.")]
    if rows:
        parts = [table(("Holder", "Devices", "Node", "Age"), rows, NODES_A_PAGE)]
    queued = [row for row in view.picture.waiting if row.pod.partition("/")[0] == name]
    if queued:
        parts += [el("h2", f"{count_of(len(queued), 'pod')} waiting"), *_by_reason(view, queued)]
    quotas = [quota for quota in view.picture.quotas if quota.quota.partition("/")[0] == name]
    return layout(f"Namespace {name}", view, *parts, *_quota_tables(quotas))


def search_results(view: DashboardView, text: str) -> Html:
    """Return the page of the pods, claims and nodes whose names contain a text."""
    reading = view.reading
    hits = [
        *(("pod", link(key, "pods", *key.split("/", 1))) for key in sorted(reading.pods) if text in key),
        *(("claim", link(key, "claims", *key.split("/", 1))) for key in sorted(reading.stock.claims) if text in key),
        *(("node", link(node.node, "nodes", node.node)) for node in view.picture.nodes if text in node.node),
    ]
    if not text or not hits:
        return layout("Nothing found", view, el("p", f"No pod, claim or node with devices has {text!r} in its name."))
    return layout(f"{text}", view, table(("Kind", "Name"), hits, NODES_A_PAGE))


def index(view: DashboardView) -> Html:
    """Return the page with the addresses of the JSON API, and the content of each answer."""
    rows = []
    for path, operations in api.openapi()["paths"].items():
        [(method, operation)] = operations.items()
        # An address is a link only if it needs neither a name nor a question.
        has_link = "{" not in path and "400" not in operation["responses"]
        address = path if method == "get" else f"{method.upper()} {path}"
        rows.append((el("a", path, href=path) if has_link else address, operation["summary"]))
    openapi_link = el("p", "The description of all addresses as ", el("a", "OpenAPI", href="/api/v1/openapi.json"), ".")
    return layout("JSON", view, table(("Path", "Content"), rows), openapi_link, current="api")
