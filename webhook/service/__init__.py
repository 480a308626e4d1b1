"""The rim: HTTPS, informers, controllers, files and clocks. It decides nothing."""

from __future__ import annotations

from webhook.service import log
from webhook.service.configuration_file import ConfigurationError, Source
from webhook.service.log import Decisions
from webhook.service.service import Address, Service, Settings

__all__ = ["Address", "ConfigurationError", "Decisions", "Service", "Settings", "Source", "log"]
