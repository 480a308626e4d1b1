"""Files for mutual TLS that another program writes: mismatched, broken and replaced files."""

import datetime as dt

import pytest
from cryptography.hazmat.primitives import serialization

from certs.mutual import Mutual, UnusableFile
from tests.certs.peers import Peers
from tests.webhook import tls


@pytest.fixture
def peers(tmp_path):
    return Peers(tmp_path)


def test_unchanged_tls_files_keep_the_loaded_context(peers):
    mutual = Mutual(peers.files)
    before = mutual.context
    assert not mutual.reload()
    assert mutual.context is before


def test_a_new_certificate_or_authority_makes_a_new_context(peers):
    mutual = Mutual(peers.files)
    contexts = [mutual.context]
    peers.renew()
    assert mutual.reload()
    contexts.append(mutual.context)
    peers.client_ca.write_bytes(tls.authority_and_leaf()[0].certificate)
    assert mutual.reload()
    assert mutual.context not in contexts


def test_mismatched_tls_files_are_a_problem_and_change_nothing(peers):
    mutual = Mutual(peers.files)
    before, old = mutual.context, peers.key.read_bytes()
    peers.renew()
    new = peers.key.read_bytes()
    peers.key.write_bytes(old)
    assert not mutual.reload()
    assert mutual.context is before
    assert mutual.problem == f"{peers.key} is not the key of {peers.cert}"
    peers.key.write_bytes(new)
    assert mutual.reload()
    assert mutual.problem == ""


def test_the_remaining_lifetime_is_known(peers):
    assert 0.9 < Mutual(peers.files).days(dt.datetime.now(dt.UTC)) < 1.1


def encrypted_key(pem):
    key = serialization.load_pem_private_key(pem, None)
    encryption = serialization.BestAvailableEncryption(b"sesame")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("cert", lambda _: b"nothing", "contains no PEM certificate"),
        ("key", lambda _: b"nothing", "contains no PEM private key"),
        ("key", encrypted_key, "without a password"),
        ("key", lambda _: tls.authority_and_leaf()[1].key, "is not the key of"),
        ("client_ca", lambda _: b"", "contains no PEM certificate of a CA"),
        ("client_ca", lambda _: "ä".encode(), "contains no PEM certificate of a CA"),
        ("cert", None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(peers, file, content, problem):
    path = getattr(peers, file)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content(path.read_bytes()))
    with pytest.raises(UnusableFile, match=problem) as caught:
        Mutual(peers.files)
    assert str(path) in str(caught.value)


def test_a_bundle_may_have_comments_in_any_script(peers):
    peers.client_ca.write_bytes("# Zertifizierungsstelle für Prüfer\n".encode() + peers.client_ca.read_bytes())
    assert Mutual(peers.files).context.get_ca_certs()
