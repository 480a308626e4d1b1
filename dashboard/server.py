"""Serves the pages and their JSON. If the last reading of the cluster is old, a request starts another one, in a thread."""

from __future__ import annotations

import asyncio
import math
import re
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from operator import itemgetter
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from analysis.doctor import faults as find_faults
from analysis.errors import NoAnswer
from analysis.loading import Needs, Unread, read_cluster
from analysis.object_events import Events, events_in, shown
from cluster.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dashboard import api, pages, tenants
from dashboard.event_reader import read_events
from dashboard.history import Samples, sample_of
from dashboard.html import el, link
from dashboard.live import LASTS as LISTENING
from dashboard.live import Live
from dashboard.login import COOKIE, LASTS, Viewer, logger
from dashboard.move import mechanisms_of, namespaces_of, survey_of
from dashboard.picture import DashboardView, draw_picture, reading_of, with_reasons
from dashboard.prometheus import SPANS
from dashboard.waiting import waits_for_node
from dashboard.whatif import Unanswerable, WhatIfQuestion, what_if
from serving.http import Crowded, Limits, Reply, Route, Site, StatusError, Turns, html

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from analysis.configuration import ConfigurationInForce
    from analysis.loading import Reading
    from analysis.survey import Overview
    from cluster.objects import Event
    from cluster.protocol import Cluster
    from dashboard.html import Html
    from dashboard.lines import Line
    from dashboard.login import Login
    from dashboard.prometheus import Prometheus
    from dashboard.whatif import WhatIf
    from dra.finding import Finding
    from dra.objects import Pod, ResourceClaim
    from serving.http import HttpRequest

    _Handler = Callable[[HttpRequest], Awaitable[Reply]]
    # Answers a request from the part of the view that the request's sender may see.
    _Shower = Callable[[DashboardView, HttpRequest], Awaitable[Reply]]
    _Writer = Callable[[DashboardView, HttpRequest], Html | None]

T = TypeVar("T")
MAX_PARTS = 16  # cached parts of views
FRESH = 10.0  # seconds for which a reading is shown before the cluster is read again
EVENTS_SECONDS = 5.0  # seconds that a page waits for the events of its object
MAX_SHARE_OF_TIME = 0.2  # while a page listens, reading the cluster takes at most this part of the time
SURVEY_LASTS = 300.0  # seconds for which a survey of a live cluster is shown
MAX_WAITING = 2  # what-if questions of an account that wait behind its first one
SEARCH = 3.0  # seconds for one what-if question
_ALL_NAMESPACES: Final = "the move is shown to accounts that may list the pods and claims of all namespaces"
# The kinds that a sample counts. If a reading lacks a kind that an earlier reading had, no sample is taken, because its counts would be wrong.
_COUNTED: Final = {kind.id for kind in (NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES)}
# A body can have a question of 32 KiB, percent-encoded. The times are enough for slow links, tokens of 4 KiB, and pages of megabytes.
LIMITS: Final = Limits(body=1 << 17, deadline=10.0, flush=60.0, cancels_on_close=True)
_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Frame-Options", "DENY"),
    ("X-Content-Type-Options", "nosniff"),
    # With no-referrer, a browser would send our own forms with `Origin: null`, and the server would refuse them.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
# The files in this folder that pages load, with their types.
_FILES: Final = {"style.css": "text/css", "script.js": "text/javascript"}
_NAME: Final = itemgetter("name")
_BEARER: Final = ("WWW-Authenticate", "Bearer")
_COOKIE_VALUE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")  # RFC 6265


class _NoTokenError(StatusError):
    """The request has no valid token."""

    def __init__(self) -> None:
        super().__init__(HTTPStatus.UNAUTHORIZED, _BEARER)


class ReadingSource(NamedTuple):
    """A source of readings: its name, and the function that reads it in a thread. Only a live source, a cluster, is read again."""

    name: str
    read: Callable[[], Reading]
    is_live: bool
    # Reads the events of an object by kind, namespace and name; None if the reading has the events.
    events: Callable[[str, str, str], Iterable[Event]] | None = None
    # Makes a survey; None if it is made from the reading.
    survey: Callable[[], Overview] | None = None

    @classmethod
    def of_cluster(cls, cluster: Cluster, name: str, given: ConfigurationInForce) -> ReadingSource:
        """Return the source of a cluster whose client belongs to the running event loop."""
        loop = asyncio.get_running_loop()

        def wait(coroutine: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

        return cls(
            name,
            lambda: wait(read_cluster(cluster, Needs(stored=waits_for_node), given=given)),
            is_live=True,
            events=lambda *arguments: wait(read_events(cluster, *arguments)),
        )


class Dashboard:
    def __init__(
        self,
        source: ReadingSource,
        *,
        login: Login | None = None,
        fresh: float = FRESH,
        search: float = SEARCH,
        patience: float = EVENTS_SECONDS,
        listening: float = LISTENING,
        again: float = 0.0,
        prometheus: Prometheus | None = None,
    ) -> None:
        """Without `login` every client of the port sees everything.

        `again` is the number of seconds between two readings for the history; with 0 the cluster is read only on request.
        """
        self._history_interval, self._prometheus = again, prometheus
        self._source = source
        self._login = login
        # The parts of the last views, by namespaces; None means all namespaces.
        self._parts: dict[frozenset[str] | None, DashboardView] = {}
        self._part_lock = asyncio.Lock()
        self._faults: tuple[Reading | None, tuple[Finding, ...]] = (
            None,
            (),
        )  # of the last reading whose faults were asked for
        self._turns = Turns(MAX_WAITING)
        self._event_reads = asyncio.Semaphore(4)
        self._fresh, self._search, self._patience = fresh, search, patience
        self._view: DashboardView | None = None
        self._problem = ""
        self._read_at = 0.0
        self._reading_seconds = 0.0
        self._live = Live(listening)
        self._reading: asyncio.Task[None] | None = None
        self._history, self._history_begun = Samples(), _now()
        self._kinds_read: set[str] = set()  # the counted kinds that at least one reading had
        self._survey: Overview | None = None
        self._survey_problem, self._survey_made_at = "", ""
        self._surveyed_at = 0.0
        self._surveying: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Listen; yield the URL."""
        routes = [
            *(Route("GET", f"/{name}", _constant(partial(_file, name))) for name in _FILES),
            Route("GET", "/events", self._events),
            Route("GET", "/what-if", self._page_handler(self._what_if)),
            Route("POST", "/what-if", self._page_handler(self._what_if)),
            Route("GET", "/api/v1/what-if", self._json_handler(self._what_if_json)),
            Route("POST", "/api/v1/simulate", self._json_handler(self._what_if_json)),
            Route("POST", "/login", self._log_in),
            Route("POST", "/logout", _constant(lambda: _to_first_page("", 0))),
            Route("GET", "/", self._page(self._fleet, reasons_up_to=pages.NODES_DRAWN, faults=True)),
            Route("GET", "/waiting", self._page(_whole(pages.waiting), reasons_up_to=math.inf)),
            Route("GET", "/move", self._page_handler(self._move)),
            Route("GET", "/api/v1/move", self._json_handler(self._move_json)),
            Route("GET", "/history", self._page_handler(self._show_history)),
            Route("GET", "/api/v1/history", self._json_handler(self._history_json)),
            Route("GET", "/quota", self._page(_whole(pages.quota))),
            Route("GET", "/find", self._page(_find)),
            Route("GET", "/pods/{namespace}/{name}", self._page(_named(pages.pod, api.key_of), about="Pod")),
            Route(
                "GET", "/claims/{namespace}/{name}", self._page(_named(pages.claim, api.key_of), about="ResourceClaim")
            ),
            Route("GET", "/devices/{driver}/{pool*}/{device}", self._page(_named(pages.device, api.device_of))),
            Route("GET", "/nodes/{name}", self._page(_named(pages.node, _NAME))),
            Route("GET", "/together", self._page(_whole(pages.combinations))),
            Route("GET", "/nodes/{name}/together", self._page(_named(pages.combinations, _NAME))),
            Route("GET", "/namespaces/{name}", self._page(_named(pages.namespace, _NAME), reasons_up_to=math.inf)),
            Route("GET", "/api", self._page(_whole(pages.index))),
            Route("GET", "/api/v1/openapi.json", _constant(lambda: _answer(api.openapi()))),
            *(
                Route("GET", endpoint.path.replace("{pool}", "{pool*}"), self._json(endpoint))
                for endpoint in api.ENDPOINTS
            ),
        ]
        site = Site(routes, LIMITS, any_host=self._login is not None, headers=_HEADERS)

        async def read_again() -> None:
            while True:
                await self.view()
                await asyncio.sleep(self._history_interval)

        reading = asyncio.create_task(read_again()) if self._history_interval else None
        try:
            async with site.open(host, port, tls) as url:
                try:
                    yield url
                finally:
                    # A request that waits for one of these tasks would delay the end of the server.
                    for task in (self._reading, self._surveying, reading):
                        if task is not None:
                            task.cancel()
                    self._live.end()
        finally:
            if reading is not None:
                reading.cancel()

    async def view(self) -> DashboardView | None:
        """Return the current view, without the reasons why pods wait.

        The first call waits for a reading. Later calls start a reading in the background if the last one is old.
        """
        is_old = time.monotonic() - self._read_at > self._fresh
        is_due = self._view is None or (is_old and self._source.is_live)
        if is_due and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())
        if self._reading is not None and self._view is None:
            await asyncio.shield(self._reading)
        return self._view

    async def _view_for(self, request: HttpRequest, *, reasons_up_to: float = 0) -> DashboardView | None:
        """Return the part of the current view that the sender of a request may see. Raises Refused without a token."""
        account = None if self._login is None else await self._login.account_of(request)
        if self._login is not None and account is None:
            raise _NoTokenError
        view = await self.view()
        if view is None:
            return None
        viewer = Viewer("")
        if self._login is not None and account is not None:
            # A pod without devices is on its own page only.
            is_of_pod = "namespace" in request.names and api.key_of(request.names) in view.reading.pods
            viewer = await self._login.viewer(
                account, view.namespaces | ({request.names["namespace"]} if is_of_pod else set())
            )
        part = await self._part_of(view, viewer.namespaces, reasons_up_to=reasons_up_to)
        narrowed = viewer.namespaces is not None
        return part._replace(viewer=viewer.name, notice=viewer.notice, problem=view.problem, narrowed=narrowed)

    async def _part_of(
        self, view: DashboardView, namespaces: frozenset[str] | None, *, reasons_up_to: float
    ) -> DashboardView:
        """Return the part of a view in these namespaces, with the reasons why pods wait if the fleet has at most so many nodes. One part is computed at a time."""

        def cached() -> DashboardView | None:
            part = self._parts.get(namespaces)
            if part is not None and part.picture.read_at == view.picture.read_at:
                return part
            return view if namespaces is None else None

        reasons = len(view.picture.nodes) <= reasons_up_to
        part = cached()
        if part is not None and (part.has_reasons or not reasons):
            return part
        async with self._part_lock:
            part = cached()
            if part is None:
                reading = await finish_in_thread(tenants.for_tenant, view.reading, namespaces)
                part = await finish_in_thread(self._view_of, reading, view.picture.read_at)
            if reasons and not part.has_reasons:
                part = await finish_in_thread(with_reasons, part)
            self._parts.pop(namespaces, None)
            self._parts[namespaces] = part
            while len(self._parts) > MAX_PARTS:
                self._parts.pop(next(iter(self._parts)))
        return part

    async def _read(self) -> None:
        begun = time.monotonic()
        try:
            reading = await asyncio.to_thread(self._source.read)
            view = await asyncio.to_thread(self._view_of, reading, _now())
            self._view = view
            unread = {missed.kind for missed in reading.unread}
            self._kinds_read |= _COUNTED - unread
            if self._history.is_due(view.picture.read_at) and not unread & self._kinds_read:
                self._history.add(await asyncio.to_thread(sample_of, view.picture, view.reading.stock))
        except NoAnswer as error:
            self._publish_problem(f"{error.message} ({error.remedy})" if error.remedy else error.message)
        except Exception:  # noqa: BLE001  a defect of ours: the last view stays, and the next reading may succeed
            logger.exception("the cluster could not be read")
            self._publish_problem("the reading failed: the log of the dashboard says why")
        self._read_at = time.monotonic()
        self._reading_seconds = self._read_at - begun
        self._live.wake()

    def _publish_problem(self, problem: str) -> None:
        """Show on every page what is wrong with the last reading."""
        self._problem = problem
        if self._view is not None:
            self._view = self._view._replace(problem=problem)

    def _view_of(self, reading: Reading, read_at: str) -> DashboardView:
        if reading.in_force.problem:
            unread = Unread("configuration", f"{reading.in_force.problem}; the default configuration applies")
            reading = msgspec.structs.replace(reading, unread=(*reading.unread, unread))
        picture = draw_picture(reading, read_at=read_at, source=self._source.name)
        return DashboardView(reading, picture, tenants.namespaces_of(reading))

    def _page_handler(self, show: _Shower, *, reasons_up_to: float = 0) -> _Handler:
        """Return a handler that answers with the page for the sender, the login form, or the reason why the cluster could not be read."""

        async def answer(request: HttpRequest) -> Reply:
            try:
                view = await self._view_for(request, reasons_up_to=reasons_up_to)
            except _NoTokenError:
                return _ask_for_token()
            if view is not None:
                return await show(view, request)
            page = pages.layout("The cluster could not be read", None, el("p", self._problem))
            return html(page, 503)

        return answer

    def _json_handler(self, write: _Shower, *, reasons_up_to: float = 0) -> _Handler:
        """Return a handler that answers with the JSON of what the sender may see, or with an error."""

        async def answer(request: HttpRequest) -> Reply:
            view = await self._view_for(request, reasons_up_to=reasons_up_to)
            return _answer({"error": self._problem}, 503) if view is None else await write(view, request)

        return answer

    def _page(self, write: _Writer, *, reasons_up_to: float = 0, faults: bool = False, about: str = "") -> _Handler:
        async def answer(view: DashboardView, request: HttpRequest) -> Reply:
            view = await self._with_events(view, about, request)
            if faults and not view.narrowed:
                view = view._replace(faults=await self._faults_of(view.reading))
            page_ = await asyncio.to_thread(write, view, request)
            if page_ is not None:
                return html(page_)
            why = "The object did not exist when the cluster was read, or its kind could not be read (see above). " if view.picture.unread else "The object did not exist when the cluster was read. "  # fmt: skip
            nothing = el("p", why, link("Look at the fleet"))
            return html(pages.layout("Not found", view, nothing), 404)

        return self._page_handler(answer, reasons_up_to=reasons_up_to)

    async def _faults_of(self, reading: Reading) -> tuple[Finding, ...]:
        """Return the findings of doctor about the whole cluster, computed once for each reading."""
        async with self._part_lock:
            if self._faults[0] is not reading:
                self._faults = reading, await finish_in_thread(find_faults, reading)
            return self._faults[1]

    async def _with_events(self, view: DashboardView, kind: str, request: HttpRequest) -> DashboardView:
        """Add the events of the object that the address names, if the viewer may see the object."""
        key = api.key_of(request.names) if kind else ""
        objects: Mapping[str, Pod | ResourceClaim] = view.reading.pods if kind == "Pod" else view.reading.stock.claims
        if key not in objects:
            return view
        namespace, _, name = key.partition("/")
        if self._login is not None:
            account = await self._login.account_of(request)
            if account is None or not await self._login.may_see_events(account, namespace):
                return view._replace(events=Events(problem=f"your account may not list events in {namespace}"))
        try:
            async with asyncio.timeout(self._patience), self._event_reads:
                ask = self._source.events or partial(events_in, view.reading)
                events = await asyncio.to_thread(lambda: list(ask(kind, namespace, name)))
        except NoAnswer as error:
            return view._replace(events=Events(problem=error.message))
        except TimeoutError:
            return view._replace(events=Events(problem="the API server did not answer in time"))
        return view._replace(events=shown(events, objects[key].metadata.uid))

    def _json(self, endpoint: api.DashboardEndpoint) -> _Handler:
        async def answer(view: DashboardView, request: HttpRequest) -> Reply:
            view = await self._with_events(view, endpoint.about, request)
            answered = await asyncio.to_thread(lambda: api.answer(endpoint, view, request.names))
            return (
                _answer(answered)
                if answered is not None
                else _answer({"error": "the object did not exist when the cluster was read"}, 404)
            )

        return self._json_handler(answer, reasons_up_to=math.inf if endpoint.type is api.WaitingShown else 0)

    async def _what_if(self, view: DashboardView, request: HttpRequest) -> Reply:
        """Answer the question in a form or in an address. Nothing is created."""
        question, answer, problem = WhatIfQuestion(), None, ""
        try:
            question = WhatIfQuestion.parse(request.query or (request.fields() if request.body else {}))
            answer = None if question.is_empty else await self._answer(view, question)
        except Unanswerable as error:
            problem = str(error)
        page = await asyncio.to_thread(pages.what_if, view, question, answer, problem)
        return html(page, 400 if problem else 200)

    async def _what_if_json(self, view: DashboardView, request: HttpRequest) -> Reply:
        """Answer the question in an address. The body of a POST is the manifest."""
        try:
            question = WhatIfQuestion.parse(request.query)
            if request.body:
                question = question._replace(text=request.body.decode(errors="replace"))
            answer = await self._answer(view, question)
        except Unanswerable as error:
            return _answer({"error": str(error)}, 400)
        return _answer(api.shown(api.WhatIfShown, view, found=answer))

    async def _answer(self, view: DashboardView, question: WhatIfQuestion) -> WhatIf:
        """Answer a question in a turn of its account, and charge the account the CPU time. Raise Unanswerable."""
        loop = asyncio.get_running_loop()

        def answer_and_charge() -> WhatIf:
            begun, end = thread_time(), time.monotonic() + self._search
            try:
                return what_if(view.reading, question, lambda: time.monotonic() > end)
            finally:
                # The loop runs this call before it ends the turn, also if the client is gone.
                loop.call_soon_threadsafe(self._turns.charge, view.viewer, thread_time() - begun)

        try:
            async with self._turns.turn(view.viewer):
                return await finish_in_thread(answer_and_charge)
        except Crowded:
            raise StatusError(HTTPStatus.TOO_MANY_REQUESTS, ("Retry-After", "5")) from None

    async def _show_history(self, view: DashboardView, request: HttpRequest) -> Reply:
        days, lines, problem = await self._days_of_history(view, request)
        if days:
            page = pages.history_of_days(view, days, lines, problem)
        else:
            page = pages.history(view, self._history.samples(narrowed=view.narrowed), self._history_begun, SPANS if self._prometheus else ())  # fmt: skip
        return html(page)

    async def _history_json(self, view: DashboardView, request: HttpRequest) -> Reply:
        days, lines, problem = await self._days_of_history(view, request)
        if problem:
            return _answer({"error": problem}, 502)
        samples = () if days else self._history.samples(narrowed=view.narrowed)
        return _answer(api.shown(api.HistoryShown, view, samples=samples, lines=tuple(lines)))

    async def _days_of_history(self, view: DashboardView, request: HttpRequest) -> tuple[int, Sequence[Line], str]:
        """Return the days in the address, their lines from Prometheus, and why there are no lines. 0 days means the samples in memory."""
        days_text = request.query.get("days", "")
        days = next((span for span in SPANS if str(span) == days_text), 0)
        if self._prometheus is None or not days:
            return 0, (), ""
        try:
            return days, await self._prometheus.lines(days, narrowed=view.narrowed), ""
        except NoAnswer as error:
            return days, (), f"{error.message} ({error.remedy})"

    async def _move(self, view: DashboardView, request: HttpRequest) -> Reply:
        """Show the last survey. A survey is made in the background; the page reloads until there is one."""
        del request
        if view.narrowed:
            return html(pages.move(view, None, _ALL_NAMESPACES), 403)
        overview, problem = await self._surveyed(view)
        page = await asyncio.to_thread(pages.move, view, overview, problem, self._survey_made_at)
        return html(page)

    async def _move_json(self, view: DashboardView, request: HttpRequest) -> Reply:
        del request
        if view.narrowed:
            return _answer({"error": _ALL_NAMESPACES}, 403)
        overview, problem = await self._surveyed(view)
        if overview is None:
            return _answer({"error": problem}, 503)
        shown = api.MoveShown(
            read_at=self._survey_made_at,
            unread=overview.unread,
            problem=problem,
            namespaces=namespaces_of(overview),
            mechanisms=mechanisms_of(view.reading.pods.values()),
            plugins=overview.plugins,
            drivers=overview.drivers,
            nodes_by_key=overview.nodes_by_key,
            obstacles=overview.obstacles,
            reasons=overview.reasons,
        )
        return _answer(shown)

    async def _surveyed(self, view: DashboardView) -> tuple[Overview | None, str]:
        """Return the last survey, or why there is none. If the last survey is old, start another one."""
        is_old = time.monotonic() - self._surveyed_at > SURVEY_LASTS and self._source.is_live
        if self._surveying is None or (self._surveying.done() and (is_old or self._survey is None)):
            self._surveying = asyncio.create_task(self._make_survey(view))
        if self._survey is None:
            await asyncio.wait((self._surveying,), timeout=self._search)
        return self._survey, self._survey_problem

    async def _make_survey(self, view: DashboardView) -> None:
        make = self._source.survey or partial(survey_of, view.reading)
        self._survey_problem = "the survey is running: this page reloads"
        made_at = _now()
        try:
            self._survey, self._survey_problem = await asyncio.to_thread(make), ""
            self._survey_made_at = made_at
        except NoAnswer as error:
            self._survey_problem = f"the survey failed: {error.message}"
        except Exception:  # noqa: BLE001  a defect of ours: the page still answers, and says where to look
            logger.exception("the survey failed")
            self._survey_problem = "the survey failed: the log of the dashboard says why"
        self._surveyed_at = time.monotonic()

    async def _log_in(self, request: HttpRequest) -> Reply:
        """If the token of the form is valid, store it in a cookie, and send the browser to the first page."""
        if self._login is None:
            raise StatusError(HTTPStatus.NOT_FOUND)
        token = request.fields().get("token", "").strip()
        if not _COOKIE_VALUE.fullmatch(token) or await self._login.account(token, request.head) is None:
            return _ask_for_token("This token is not valid: it is for another cluster, or it has expired.")
        return _to_first_page(token, LASTS)

    async def _events(self, request: HttpRequest) -> Reply:
        if self._login is not None and await self._login.account_of(request) is None:
            raise _NoTokenError

        async def look() -> tuple[str, float]:
            """Return the name of the last reading, and the seconds until the next call. A cluster that takes long to read is read less often."""
            pause = max(self._fresh, self._reading_seconds / MAX_SHARE_OF_TIME)
            is_due = time.monotonic() - self._read_at > pause
            view = await self.view() if is_due else self._view
            return reading_of(view) if view else "", pause + 0.1

        return await self._live.answer(look)

    @staticmethod
    def _fleet(view: DashboardView, request: HttpRequest) -> Html:
        query = request.query
        by, at = query.get("by"), query.get("at", "0")
        number = int(at) if at.isascii() and at.isdigit() and len(at) < 9 else 0
        first = number // pages.NODES_A_PAGE * pages.NODES_A_PAGE
        return pages.fleet(view, None if by is None else by.strip(), query.get("shelf"), first, query.get("colour", ""))


async def finish_in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a thread. If the caller is cancelled, wait for the end of the thread, so that the caller's locks stay locked until then."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    # If the caller is gone, nothing else reads the exception, and asyncio would log a traceback.
    work.add_done_callback(lambda work: work.cancelled() or work.exception())
    try:
        return await asyncio.shield(work)
    finally:
        await asyncio.wait([work])


def _file(name: str) -> Reply:
    return Reply(200, Path(__file__).with_name(name).read_bytes(), f"{_FILES[name]}; charset=utf-8")


def _whole(write: Callable[[DashboardView], Html | None]) -> _Writer:
    """Return a writer of a page about the whole reading."""
    return lambda view, _: write(view)


def _named(write: Callable[[DashboardView, str], Html | None], name_in: Callable[[Mapping[str, str]], str]) -> _Writer:
    """Return a writer of a page about the object that the address names."""
    return lambda view, request: write(view, name_in(request.names))


def _find(view: DashboardView, request: HttpRequest) -> Html:
    return pages.search_results(view, request.query.get("q", "")[:200].strip())


def _constant(make: Callable[[], Reply]) -> _Handler:
    """Return a handler that answers each request with the reply of `make`."""

    async def answer(request: HttpRequest) -> Reply:
        del request
        return make()

    return answer


def _to_first_page(token: str, lasts: int) -> Reply:
    """Send the browser to the first page, with a cookie that scripts cannot read and requests from other sites do not carry."""
    cookie = f"{COOKIE}={token}; Max-Age={lasts}; Path=/; Secure; HttpOnly; SameSite=Strict"
    return Reply(303, b"", headers=(("Location", "/"), ("Set-Cookie", cookie)))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ask_for_token(problem: str = "") -> Reply:
    page = pages.login(problem)
    return html(page, 401, _BEARER)


def _answer(value: Any, status: int = 200) -> Reply:
    return Reply(status, msgspec.json.encode(value), "application/json")
