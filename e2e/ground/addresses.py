"""Finds loopback ports and subnets that no other run on this machine uses."""

import fcntl
import ipaddress
import os
import random
import socket
import subprocess
from functools import cache as once

from e2e.ground.cache import cache

SUBNETS = 1 << 16  # reserved numbers below this one are ports; the others stand for subnets


def free_port() -> int:
    """Return a free port of loopback, outside the range of outgoing connections.

    While this process lives, no other caller of this function gets the port. So runs may start side by side, although seconds pass
    until a process listens on the port.
    """
    while True:
        port = random.randint(20000, 32000)
        if not reserve(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


RESERVED: set[int] = set()


def reserve(number: int) -> bool:
    """Reserve a number among all callers: lock its byte in a file of the cache until this process ends."""
    if number in RESERVED:
        return False
    try:
        fcntl.lockf(reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except OSError:
        return False
    RESERVED.add(number)
    return True


@once
def reservations() -> int:
    """Open the file of reservations once: when a process closes any descriptor of a file, the kernel drops its locks on it."""
    return os.open(cache() / "ports", os.O_RDWR | os.O_CREAT, 0o644)


def free_subnet() -> str:
    """Return a /24 that no route of this machine covers and no other node has reserved; a node has routes from its first pod on."""
    routes = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True).stdout
    for number, subnet in enumerate(ipaddress.ip_network("10.88.0.0/16").subnets(new_prefix=24)):
        if str(subnet.network_address).removesuffix("0") not in routes and reserve(SUBNETS + number):
            return str(subnet)
    raise RuntimeError("no free /24 in 10.88.0.0/16: look at `ip route`")
