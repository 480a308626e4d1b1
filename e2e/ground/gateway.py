"""The way from a node's pods to the API server, which listens on loopback: what a cluster has Service addresses for.

`python -m e2e.ground.gateway ADDRESS HOST PORT` passes on what comes to that port of an address of the pods' network, until it is ended.
"""

import asyncio
import contextlib
import socket
import sys

FREEBIND = 15  # IP_FREEBIND: the address is there as soon as the first pod is
CHUNK = 64 * 1024


async def serve(address: str, host: str, port: int) -> None:
    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            answers, questions = await asyncio.open_connection(host, port)
            await asyncio.gather(copy(reader, questions), copy(answers, writer))
        writer.close()

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, port))
    server = await asyncio.start_server(lead, sock=listening)
    await server.serve_forever()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while content := await source.read(CHUNK):
            target.write(content)
            await target.drain()
    finally:
        target.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
