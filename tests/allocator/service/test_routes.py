"""What schedulers and people may ask stands in docs/allocator-api.md, call by call."""

import re
from pathlib import Path
from unittest.mock import Mock

from allocator.service.queries import api_routes
from allocator.service.schedulers.extender import extender_routes
from allocator.service.schedulers.plugin import plugin_routes

PAGE = Path(__file__).parents[3] / "docs" / "allocator-api.md"


def asked_for_on_the_page():
    """Each item of the page's lists: a method, and one path or several, the later ones cut short or parameters alone."""
    for cell in re.findall(r"^- (`(?:GET|POST) .*?`):(?: |$)", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        first, *others = re.findall(r"`(.*?)`", cell)
        method, path = first.partition("?")[0].split()
        yield method, path
        for other in others:
            if other.startswith("/"):
                yield method, other if other.startswith("/api/") else f"{path.rpartition('/')[0]}{other}"


def test_the_page_has_every_call_and_no_other():
    routes = {*plugin_routes(Mock()), *extender_routes(Mock()), *api_routes(Mock())}
    assert set(asked_for_on_the_page()) == routes
