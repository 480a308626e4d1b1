"""A strict parser of HTML pages."""

from html.parser import HTMLParser

VOID_ELEMENTS = ("meta", "link", "input", "br", "rect", "line")


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of the page. An element that is closed out of order is an error."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.open, self.text = [], [], ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def targets(self):
        """Return the addresses in the attributes href, src and action."""
        return [
            attributes[key] for _, attributes in self.seen for key in ("href", "src", "action") if key in attributes
        ]
