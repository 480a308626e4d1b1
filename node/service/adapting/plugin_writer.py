"""The CDI files of claims on devices of plugins: a plugin is asked once for what a claim has, and the file remembers what it answered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from node.plugins import PluginFault, answer_from_spec, identify, spec_of_answers
from node.service.prepared_store import Unshown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from node.checkpoint import Prepared
    from node.messages import Edits, PreparedClaim
    from node.service.adapting.plugin_host import PluginHost

# For all plugins of a claim together; the kubelet waits for 45.
SECONDS = 40.0
Asked = dict[str, dict[str, list[str]]]


class PluginWriter:
    """Writes what plugins answer. Its functions run in threads, beside the loop of the host."""

    def __init__(self, driver: str, host: PluginHost, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self._host = host
        self._loop = loop

    def spec(self, record: Prepared, there: bytes | None) -> bytes:
        """Give the file of a claim: the one that is there, or else what the plugins say now."""
        if there is not None:
            with suppress(PluginFault):
                answer_from_spec(self._driver, record, there)
                return there
        edits: dict[str, Edits] = {}
        # The ids to ask each plugin for: by resource, by request.
        known = identify(self._host.plugins())
        asked: Asked = {}
        owners: dict[str, str] = {}
        for held in record.devices:
            one = known.get(held.device)
            if one is None:
                raise Unshown(f"no device plugin has {held.device} any more")
            if owners.setdefault(held.asked, one.resource) != one.resource:
                raise Unshown(f"the request {held.asked} has devices of two plugins: make it two requests")
            asked.setdefault(one.resource, {}).setdefault(held.asked, []).append(one.id)
        try:
            for resource, devices in asked.items():
                asking = asyncio.run_coroutine_threadsafe(self._host.allocate(resource, devices), self._loop)
                try:
                    edits |= asking.result(SECONDS)
                except TimeoutError:
                    asking.cancel()
                    raise Unshown(f"the device plugin of {resource} has not answered in {SECONDS:.0f} s") from None
        except PluginFault as fault:
            raise Unshown(str(fault)) from None
        return spec_of_answers(self._driver, record, edits)

    def told(self, record: Prepared) -> Mapping[str, bytes]:
        """Give nothing: what a container learns of a plugin's device is the plugin's to say."""
        del record
        return {}

    def answer(self, record: Prepared, spec: bytes) -> PreparedClaim:
        return answer_from_spec(self._driver, record, spec)
