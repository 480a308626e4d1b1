"""The I/O of the webhook: HTTPS, informers, controllers, files and clocks. `webhook.admission` decides.

Names are imported lazily, so that a command that reads a configuration file does not import the web server.
"""

from typing import TYPE_CHECKING

from serving.lazy import lazily

if TYPE_CHECKING:
    from webhook.service import log
    from webhook.service.configuration_file import Source, configuration_in, load_configuration, only_document
    from webhook.service.evidence import read_evidence
    from webhook.service.log import Decisions
    from webhook.service.service import WebhookServer
    from webhook.service.settings import WebhookSettings

__all__ = [
    "Decisions",
    "Source",
    "WebhookServer",
    "WebhookSettings",
    "configuration_in",
    "load_configuration",
    "log",
    "only_document",
    "read_evidence",
]

__getattr__ = lazily(
    __name__,
    {
        "configuration_file": ("Source", "configuration_in", "load_configuration", "only_document"),
        "evidence": ("read_evidence",),
        "log": ("Decisions",),
        "service": ("WebhookServer",),
        "settings": ("WebhookSettings",),
    },
)
