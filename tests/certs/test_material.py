import datetime as dt
import itertools
import ssl

import pytest
from cryptography import x509

from certs import authority, material
from certs.material import Material
from certs.rotation import LEADS_TO, Phase, Policy, Step, step

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
POLICY = Policy(dt.timedelta(days=300), dt.timedelta(days=90), dt.timedelta(minutes=10))
NAMES = ("drawbridge.drawbridge-system.svc", "127.0.0.1")


def advance(held, now):
    """Step until nothing is left to do, as the store does."""
    taken = []
    while (due := step(material.view(held, NAMES, bundle_everywhere=True), now=now, policy=POLICY)) and len(taken) < 5:
        held = material.apply(held, due, NAMES, now=now, policy=POLICY)
        taken.append(due)
    return held, taken


def trusts(bundle, leaf):
    return any(authority.signed_by(leaf, c.public_bytes(x509_pem())) for c in x509.load_pem_x509_certificates(bundle))


def x509_pem():
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.PEM


def test_an_empty_secret_is_filled_in_one_step():
    held, taken = advance(Material(), NOW)
    assert taken == [Step.REMAKE]
    assert held.phase is Phase.STEADY
    assert authority.names(held.leaf.certificate) == set(NAMES)
    assert trusts(held.bundle, held.leaf.certificate)


def test_material_survives_the_secret():
    held, _ = advance(Material(), NOW)
    held = material.apply(held, Step.INTRODUCE, NAMES, now=NOW, policy=POLICY)
    assert material.decode(material.encode(held)) == held


def test_every_leaf_that_may_be_served_is_trusted_by_every_bundle_that_may_be_believed():
    """Over five lives of the authority: neighbours in time, old or new, must always fit together."""
    held, history = Material(), []
    now = NOW
    for _ in range(1500):
        held, _ = advance(held, now)
        history.append(held)
        now += dt.timedelta(days=1)
    seen = {h.phase for h in history}
    assert seen >= {Phase.STEADY, Phase.INTRODUCED, Phase.SWITCHED}
    for before, after in itertools.pairwise(history):
        assert trusts(before.bundle, after.leaf.certificate)
        assert trusts(after.bundle, before.leaf.certificate)
    assert len({h.authority for h in history}) >= 5


def test_each_step_leads_to_the_phase_its_table_says():
    held, _ = advance(Material(), NOW)
    for taken in (Step.INTRODUCE, Step.SWITCH, Step.RETIRE, Step.REMAKE):
        held = material.apply(held, taken, NAMES, now=NOW, policy=POLICY)
        assert held.phase is LEADS_TO[taken]


def test_the_bundle_holds_both_authorities_while_one_follows_the_other():
    held, _ = advance(Material(), NOW)
    introduced = material.apply(held, Step.INTRODUCE, NAMES, now=NOW, policy=POLICY)
    switched = material.apply(introduced, Step.SWITCH, NAMES, now=NOW, policy=POLICY)
    assert len(x509.load_pem_x509_certificates(introduced.bundle)) == 2
    assert set(switched.bundle.split(b"-----BEGIN")) == set(introduced.bundle.split(b"-----BEGIN"))


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
@pytest.mark.parametrize("entry", ["tls.crt", "tls.key", "authority.crt", "authority.key", "since", "next.crt"])
def test_a_secret_damaged_by_hand_is_mended(entry, damage):
    held, _ = advance(Material(), NOW)
    data = material.encode(held) | {entry: damage}
    mended, _ = advance(material.decode(data), NOW)
    assert trusts(mended.bundle, mended.leaf.certificate)
    assert mended.phase is Phase.STEADY


def test_a_certificate_beside_somebody_elses_key_is_replaced():
    held, _ = advance(Material(), NOW)
    other, _ = advance(Material(), NOW)
    data = material.encode(held) | {"tls.key": material.encode(other)["tls.key"]}
    _, taken = advance(material.decode(data), NOW)
    assert taken == [Step.SIGN]


def test_a_new_name_to_serve_under_gets_a_new_leaf():
    held, _ = advance(Material(), NOW)
    seen = material.view(held, [*NAMES, "drawbridge.elsewhere.svc"], bundle_everywhere=True)
    assert step(seen, now=NOW, policy=POLICY) is Step.SIGN


def test_a_leaf_never_outlives_its_authority():
    signer = authority.authority("a", now=NOW, life=dt.timedelta(days=10))
    made = authority.leaf(signer, NAMES, now=NOW, life=dt.timedelta(days=90))
    assert authority.span(made.certificate).end == authority.span(signer.certificate).end


def test_openssl_accepts_the_pair_for_serving_and_the_bundle_for_trust(tmp_path):
    held, _ = advance(Material(), dt.datetime.now(dt.UTC))
    (tmp_path / "crt").write_bytes(held.leaf.certificate)
    (tmp_path / "key").write_bytes(held.leaf.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "crt", tmp_path / "key")
    client = ssl.create_default_context(cadata=held.bundle.decode())
    assert len(client.get_ca_certs()) == 1
