"""gRPC at both ends: our messages, and a bound on their length.

grpclib reads a message whole, however long its head says it is. Here the length is checked first, so a peer that lies, or sends too much,
costs no memory. The library has no hook for it, so `Stream.recv_data`, by which both ends read, is replaced for the whole process.
"""

from __future__ import annotations

from typing import Any

from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.protocol import Stream
from grpclib.server import Server

from dra.protobuf import ProtobufError
from node.messages import decode, encode

# The errors of a call that fails. The library does not implement compression, which is not used.
BROKEN = (GRPCError, ProtocolError, StreamTerminatedError, ProtobufError, OSError, TimeoutError, NotImplementedError)
# What a kubelet takes of a plugin, too: the usual most of gRPC.
LONGEST_MESSAGE = 4 << 20
# Bytes that a peer may have sent and that were not read yet.
_WINDOW = 1 << 17
_CONFIGURATION = Configuration(http2_connection_window_size=_WINDOW, http2_stream_window_size=_WINDOW)


class Codec:
    """Our messages, for grpclib. The type bytes is passed on unread."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        del message_type
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        if message_type is bytes:
            return data
        try:
            return decode(data, message_type)
        except ProtobufError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from None


def channel_to(path: str) -> Any:
    return Channel(path=path, codec=Codec(), config=_CONFIGURATION)


class _Server(Server):  # type: ignore[misc]  # grpclib brings no types
    async def wait_closed(self) -> None:
        """Wait for calls that were made. asyncio waits, since Python 3.12, until clients have hung up, and a kubelet does not."""
        for handler in self._handlers:
            await handler.wait_closed()


def server_of(handler: Any) -> Any:
    return _Server([handler], codec=Codec(), config=_CONFIGURATION)


_read_unbounded = Stream.recv_data


async def _read_bounded(stream: Any, size: int) -> bytes:
    """Read a piece of a message, unless its head says that it is too long."""
    if size > LONGEST_MESSAGE:
        most = f"{LONGEST_MESSAGE} are the most that are taken"
        raise GRPCError(Status.RESOURCE_EXHAUSTED, f"a message has {size} bytes, and {most}")
    try:
        data: bytes = await _read_unbounded(stream, size)
    except AssertionError:
        raise GRPCError(Status.DATA_LOSS, "a message is cut off") from None
    return data


Stream.recv_data = _read_bounded
