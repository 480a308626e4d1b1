"""Writes the CDI files of claims with plugins' devices: the plugins allocate a claim's devices once, and the file keeps their answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from node.plugins import PluginFault, answer_from_spec, identify, spec_of_answers
from node.service.prepared_store import SpecUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from node.checkpoint import Prepared
    from node.messages import Edits, PreparedClaim
    from node.service.adapting.plugin_host import PluginHost

SECONDS = 40.0  # the longest wait for the answers of all plugins of a claim; the kubelet waits for 45


class PluginWriter:
    """A Writer that calls the plugins. Its methods run in threads, not in the host's event loop."""

    def __init__(self, driver: str, host: PluginHost, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self._host = host
        self._loop = loop

    def spec(self, record: Prepared, current: bytes | None) -> bytes:
        """Return the current file of a claim if it is valid; otherwise let the plugins allocate the devices."""
        if current is not None:
            with suppress(PluginFault):
                answer_from_spec(self._driver, record, current)
                return current
        # The ids to allocate, by resource and request.
        plugin_devices = identify(self._host.plugins())
        ids_by_resource: dict[str, dict[str, list[str]]] = {}
        resource_by_request: dict[str, str] = {}
        for prepared_device in record.devices:
            request = prepared_device.request_name
            if prepared_device.device not in plugin_devices:
                raise SpecUnavailable(f"no device plugin offers {prepared_device.device} any longer")
            resource, id_ = plugin_devices[prepared_device.device]
            if resource_by_request.setdefault(request, resource) != resource:
                raise SpecUnavailable(f"the request {request} has devices of two plugins: make it two requests")
            ids_by_resource.setdefault(resource, {}).setdefault(request, []).append(id_)
        allocation = asyncio.run_coroutine_threadsafe(self._allocate(ids_by_resource), self._loop)
        try:
            edits = allocation.result(SECONDS)
        except PluginFault as fault:
            raise SpecUnavailable(str(fault)) from None
        except TimeoutError:
            allocation.cancel()
            resources = " and ".join(ids_by_resource)
            raise SpecUnavailable(f"{resources}: the device plugin has not answered in {SECONDS:.0f} s") from None
        return spec_of_answers(self._driver, record, edits)

    async def _allocate(self, ids_by_resource: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Edits]:
        """Return the edits of each request."""
        edits: dict[str, Edits] = {}
        for resource, devices in ids_by_resource.items():
            edits |= await self._host.allocate(resource, devices)
        return edits

    def metadata(self, record: Prepared) -> Mapping[str, bytes]:
        """Return no files: the plugins' own edits describe the devices to containers."""
        del record
        return {}

    def answer(self, record: Prepared, spec: bytes) -> PreparedClaim:
        return answer_from_spec(self._driver, record, spec)
