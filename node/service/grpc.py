"""What all connections have in common, on both ends: our messages, and a bound on their length.

grpclib reads a message whole, however long its head says it is. Here the length is looked at first, so a peer that lies, or has too much to say,
costs no memory. The library's own connections are made in two places; both have a stream that looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.server import Server

from dra.protobuf import ProtobufError
from node.messages import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """Write a message."""
        del message_type
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        """Read a message."""
        if message_type is bytes:
            return data
        try:
            return decode(data, message_type)
        except ProtobufError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from None


def channel_to(path: str) -> Any:
    """Make a way to a server's socket."""
    return _bounded(Channel(path=path, codec=Codec(), config=_CONFIGURATION))


def server_of(handler: Any) -> Any:
    """Make a server for whoever may open our socket."""
    return _bounded(Server([handler], codec=Codec(), config=_CONFIGURATION))


def _bounded(made: Any) -> Any:
    """Have all connections of a channel or server make streams that look at lengths."""
    make = made._protocol_factory  # noqa: SLF001  there is no other way to a connection before its first stream

    def make_protocol() -> Any:
        protocol = make()
        connected = protocol.connection_made

        def connection_made(transport: Any) -> None:
            connected(transport)
            connection = protocol.connection
            connection.create_stream = _looking(connection.create_stream)

        protocol.connection_made = connection_made
        return protocol

    made._protocol_factory = make_protocol  # noqa: SLF001
    return made


def _looking(create: Callable[..., Any]) -> Callable[..., Any]:
    def create_stream(**named: Any) -> Any:
        stream = create(**named)
        receive = stream.recv_data

        async def recv_data(size: int) -> bytes:
            if size > LONGEST_MESSAGE:
                most = f"{LONGEST_MESSAGE} are the most that are taken"
                raise GRPCError(Status.RESOURCE_EXHAUSTED, f"a message has {size} bytes, and {most}")
            try:
                data: bytes = await receive(size)
            except AssertionError:
                raise GRPCError(Status.DATA_LOSS, "a message is cut off") from None
            return data

        stream.recv_data = recv_data
        return stream

    return create_stream
