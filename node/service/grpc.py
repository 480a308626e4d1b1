"""gRPC servers and channels for `node.messages`. The peers are the kubelet and the node's device plugins, which run as root."""

from __future__ import annotations

from typing import Any

from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.server import Server

from dra.protobuf import ProtobufError
from node.messages import decode, encode

# All errors of a failed call. grpclib raises NotImplementedError for compressed messages, KeyError for an answer without a status, and
# AssertionError for a message that is cut off.
BROKEN = (
    *(GRPCError, ProtocolError, StreamTerminatedError, ProtobufError, OSError, TimeoutError),
    *(NotImplementedError, KeyError, AssertionError),
)


class Codec:
    """The codec of grpclib for `node.messages`."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        del message_type
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        try:
            return decode(data, message_type)
        except ProtobufError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from None


def channel_to(path: str) -> Any:
    return Channel(path=path, codec=Codec())


class _GrpcServer(Server):  # type: ignore[misc]  # grpclib brings no types
    async def wait_closed(self) -> None:
        """Wait for running calls. Since Python 3.12 asyncio's own method waits until clients disconnect, which the kubelet does not."""
        for handler in self._handlers:
            await handler.wait_closed()


def server_of(handler: Any) -> Any:
    return _GrpcServer([handler], codec=Codec())
