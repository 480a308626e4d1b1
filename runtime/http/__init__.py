"""The HTTP server: accepts connections, reads requests and writes answers, each step with a deadline.

It does not interpret requests: a `Handler`, such as the webhook or the allocator, answers them.

A request passes through these functions, in this order:

    listener.Listener._accept                 accept a connection, and close another one if there are too many
    tls_handshakes.Handshakes.turn_of         wait for a complete ClientHello, and for a turn
    reading.PeerTransport.read_on             decrypt some TLS records, in turns
    connection.PeerConnection.data_received   parse the head, and collect the body
    listener.Listener.queue_request           queue the complete request
    fair_queue.FairQueue._answer              take the request from the queue, in its turn
    connection.PeerConnection.answer          call `Handler.answer`, and write the reply
"""

from runtime.http.connection import Limits
from runtime.http.listener import Address, Listener, listens
from runtime.http.messages import Head, Reply, count_members, text
from runtime.http.site import Refused, Request, Route, Site, html
from runtime.http.turns import Turns

__all__ = ["Address", "Head", "Limits", "Listener", "Refused", "Reply", "Request", "Route", "Site", "Turns", "count_members", "html", "listens", "text"]  # fmt: skip
