"""What may be named on the command line: namespaces, images, certificates, addresses."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import click

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{LABEL.pattern}(?:\.{LABEL.pattern})*")
# What a container runtime takes for the name of an image (distribution/reference).
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGES = re.compile(
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?"
    rf"{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,}})?",
    re.ASCII,
)


class NamespaceType(click.ParamType["str"]):
    """A name that a namespace can have."""

    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not LABEL.fullmatch(value):
            self.fail(f"{value!r} is not a namespace: lower case letters, digits and '-', at most 63", param, ctx)
        return value


class ImageType(click.ParamType["str"]):
    """The name of an image, as a container runtime reads it."""

    name = "REF"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value and not IMAGES.fullmatch(value):
            self.fail(f"{value!r} does not name an image: write REGISTRY/drawbridge:TAG", param, ctx)
        return value


class CertificateType(click.ParamType["str"]):
    """Namespace and name of a Certificate of cert-manager."""

    name = "NAMESPACE/NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        namespace, _, name = value.partition("/")
        named = LABEL.fullmatch(namespace) and _SUBDOMAIN.fullmatch(name)
        if value and not named:
            self.fail(f"{value!r} does not name a Certificate: write NAMESPACE/NAME", param, ctx)
        return value


class UrlType(click.ParamType["str"]):
    """An address that a webhook configuration can hold (k8s.io/apiserver pkg/util/webhook, ValidateWebhookURL)."""

    name = "URL"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            url = urlsplit(value)
            port = url.port
        except ValueError as error:
            self.fail(f"{value!r} is not a URL: {error}", param, ctx)
        if value and (url.scheme != "https" or not url.hostname or port == 0):
            self.fail(f"{value!r} is not an address for webhooks: write https://HOST:PORT", param, ctx)
        if url.username or url.password or url.query or url.fragment:
            self.fail(f"{value!r}: a webhook's URL has no user, no query and no fragment", param, ctx)
        return value
