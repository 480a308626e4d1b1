"""What schedulers and people may ask stands in docs/bridge.md, call by call."""

import re
from pathlib import Path
from unittest.mock import sentinel

from allocator.service.process import api_routes, extender_routes, plugin_routes

PAGE = Path(__file__).parents[3] / "docs" / "bridge.md"


def asked_for_on_the_page():
    """Each row of the tables under "Asking": a method, and one path or several."""
    asking = PAGE.read_text(encoding="utf-8").partition("## Asking")[2]
    rows = re.findall(r"^\| `(GET|POST) (.*?)` *(?:, `(/.*?)`)? \|", asking, re.MULTILINE)
    for method, first, second in rows:
        path = first.partition("?")[0]
        yield method, path
        if second:
            yield method, second if second.startswith("/api") else f"{path.rpartition('/')[0]}{second}"


def test_the_page_has_every_call_and_no_other():
    routes = {*plugin_routes(sentinel), *extender_routes(sentinel), *api_routes(sentinel)}
    assert set(asked_for_on_the_page()) == routes
