"""Certificates for tests of servers, and a client's context that trusts their authority."""

import datetime as dt
import ssl

from certs import authority, reload


def authority_and_leaf(*names, start=None, life=dt.timedelta(days=1)):
    start = start or dt.datetime.now(dt.UTC)
    signer = authority.authority("test", now=start, life=life)
    return signer, authority.leaf(signer, names or ("127.0.0.1",), now=start, life=life)


def server(leaf):
    context = reload.context()
    reload.load(context, leaf)
    return context


def client(*authorities):
    return ssl.create_default_context(cadata=b"".join(a.certificate for a in authorities).decode())
