"""gRPC servers and channels for `node.messages`, with a limit on message length.

This module changes three things in grpclib. grpclib reads a message of any length into memory; here the length in the message's header is
checked first, so that a peer cannot use up memory. A response without a status raises KeyError in grpclib; here the call fails. grpclib
handles all frames that it has read at once, up to 29,000, in one turn of the event loop; here they are handled in pieces. grpclib has no
hooks for these changes, so `Stream.recv_data` (of servers and clients), the check of a client's status and `H2Protocol.data_received` are
replaced for the whole process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpclib.client import Channel
from grpclib.client import Stream as Call
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol, Stream
from grpclib.server import Server

from dra.protobuf import ProtobufError
from node.messages import decode, encode

# All errors of a failed call. grpclib raises NotImplementedError for compressed messages.
BROKEN = (GRPCError, ProtocolError, StreamTerminatedError, ProtobufError, OSError, TimeoutError, NotImplementedError)
LONGEST_MESSAGE = 4 << 20  # bytes: gRPC's default, which the kubelet uses for plugins, too
_WINDOW = 1 << 17  # bytes that a peer may send before they are read
_PIECE = 1 << 12  # bytes of frames that are handled in one turn of the loop
_CONFIGURATION = Configuration(http2_connection_window_size=_WINDOW, http2_stream_window_size=_WINDOW)


class Codec:
    """The codec of grpclib for `node.messages`. A message of type bytes stays encoded."""

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


class _GrpcServer(Server):  # type: ignore[misc]  # grpclib brings no types
    async def wait_closed(self) -> None:
        """Wait for running calls. Since Python 3.12 asyncio's own method waits until clients disconnect, which the kubelet does not."""
        for handler in self._handlers:
            await handler.wait_closed()


def server_of(handler: Any) -> Any:
    return _GrpcServer([handler], codec=Codec(), config=_CONFIGURATION)


_read_unbounded = Stream.recv_data


async def _read_bounded(stream: Any, size: int) -> bytes:
    """Read a part of a message, unless its header says that it is too long."""
    if size > LONGEST_MESSAGE:
        message = f"a message has {size} bytes, and {LONGEST_MESSAGE} is the maximum"
        raise GRPCError(Status.RESOURCE_EXHAUSTED, message)
    try:
        data: bytes = await _read_unbounded(stream, size)
    except AssertionError:
        raise GRPCError(Status.DATA_LOSS, "a message is cut off") from None
    return data


Stream.recv_data = _read_bounded

_check_value = Call._raise_for_status  # noqa: SLF001  no hook, as above


def _check_status(call: Any, headers: dict[str, str]) -> None:
    if ":status" not in headers:
        raise ProtocolError("an answer has no status")
    _check_value(call, headers)


Call._raise_for_status = _check_status  # noqa: SLF001


_receive = H2Protocol.data_received


def _receive_by_pieces(line: Any, data: bytes, at: int = 0) -> None:
    """Handle one piece of the read bytes, and the next piece in another turn of the loop. Reading is paused until all pieces are handled."""
    if at and line.connection.is_closing():
        return
    _receive(line, data[at : at + _PIECE])
    after = at + _PIECE
    if line.connection.is_closing():
        return
    transport = line.connection._transport  # noqa: SLF001
    if after < len(data):
        if not at:
            transport.pause_reading()
        asyncio.get_running_loop().call_soon(_receive_by_pieces, line, data, after)
    elif at:
        transport.resume_reading()


H2Protocol.data_received = _receive_by_pieces
