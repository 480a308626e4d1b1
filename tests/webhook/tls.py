"""A server certificate and a client that trusts it, for tests of the webhook's server."""

import datetime as dt
import ssl

from certs import authority, reload


def pair(*names, now=None, life=dt.timedelta(days=1)):
    now = now or dt.datetime.now(dt.UTC)
    signer = authority.authority("test", now=now, life=life)
    return signer, authority.leaf(signer, names or ("127.0.0.1",), now=now, life=life)


def server(leaf):
    made = reload.context()
    reload.load(made, leaf)
    return made


def client(*authorities):
    return ssl.create_default_context(cadata=b"".join(a.certificate for a in authorities).decode())
