import datetime as dt
import itertools
import ssl

import pytest
from cryptography import x509

from certs import authority, material
from certs.material import Material, Names
from certs.rotation import LEADS_TO, Policy, RotationPhase, Step, step

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
POLICY = Policy(dt.timedelta(days=300), dt.timedelta(days=90), dt.timedelta(minutes=10))
NAMES = Names(("drawbridge.drawbridge-system.svc", "127.0.0.1"), ("drawbridge-quota.drawbridge-system.svc",))


KEYS = itertools.count()


def new_signing_key():
    return b"%032d" % next(KEYS)


def apply(held, due, names, *, now):
    return material.apply(held, due, names, now=now, policy=POLICY, new_signing_key=new_signing_key)


def advance(held, now):
    """Step until nothing is left to do, as the store does."""
    held, taken = material.ensure_signing_key(held, new_signing_key), []
    while (due := step(material.view(held, NAMES, bundle_everywhere=True), now=now, policy=POLICY)) and len(taken) < 5:
        held = apply(held, due, NAMES, now=now)
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
    assert held.phase is RotationPhase.STEADY
    assert authority.names(held.leaf.certificate) == set(NAMES.webhook)
    assert trusts(held.bundle, held.leaf.certificate)


def test_material_survives_a_round_trip_through_secrets():
    held, _ = advance(Material(), NOW)
    held = apply(held, Step.INTRODUCE, NAMES, now=NOW)
    assert material.decode(material.encode(held)) == held


def test_every_served_leaf_is_trusted_by_every_bundle():
    """During five lifetimes of the authority, the bundles of the day before and of the day after trust each leaf."""
    held, history = Material(), []
    now = NOW
    for _ in range(1500):
        held, _ = advance(held, now)
        history.append(held)
        now += dt.timedelta(days=1)
    seen = {h.phase for h in history}
    assert seen >= {RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED}
    for before, after in itertools.pairwise(history):
        assert trusts(before.bundle, after.leaf.certificate)
        assert trusts(after.bundle, before.leaf.certificate)
    assert len({h.authority for h in history}) >= 5


def test_each_step_leads_to_the_phase_its_table_says():
    held, _ = advance(Material(), NOW)
    for taken in (Step.INTRODUCE, Step.SWITCH, Step.RETIRE, Step.REMAKE):
        held = apply(held, taken, NAMES, now=NOW)
        assert held.phase is LEADS_TO[taken]
    assert apply(Material(), Step.REMAKE, NAMES, now=NOW).phase is RotationPhase.STEADY, "where nothing was before"


def test_a_signing_key_is_distributed_before_use_and_kept_after():
    """During five lifetimes of the authority, a replica's signatures are valid for replicas that are a day behind or ahead."""
    held, now, history = Material(), NOW, []
    for _ in range(1500):
        held, _ = advance(held, now)
        history.append(held.signing_keys)
        now += dt.timedelta(days=1)
    for before, after in itertools.pairwise(history):
        assert before.keys[0] in after.keys
        assert after.keys[0] in before.keys
    assert len({keys.current for keys in history}) >= 5
    lives = [
        [day for day, keys in enumerate(history) if key in keys.keys] for key in {s.current for s in history[:700]}
    ]
    assert min(len(life) for life in lives) > 300, "a pod that was signed yesterday lives on when the key changes today"


def test_a_signing_key_survives_the_loss_of_any_secret():
    held, _ = advance(Material(), NOW)
    whole = material.encode(held)
    for lost in whole._fields:
        assert material.decode(whole._replace(**{lost: None})).signing_keys == held.signing_keys
    assert apply(held, Step.REMAKE, NAMES, now=NOW).signing_keys == held.signing_keys


def test_serving_files_do_not_contain_the_authority_key():
    held, _ = advance(Material(), NOW)
    introduced = apply(held, Step.INTRODUCE, NAMES, now=NOW)
    serving, authority_data, signing, allocator = material.encode(introduced)
    assert {"authority.key", "next.key"} <= authority_data.keys()
    keys = (introduced.authority.key, introduced.next.key)
    assert not any(
        key in value for value in (*serving.values(), *signing.values(), *allocator.values()) for key in keys
    )
    assert serving.keys() == allocator.keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert signing.keys() == {"signature.key", "signature-next.key"}


def test_without_its_own_secret_there_is_no_authority():
    held, _ = advance(Material(), NOW)
    serving, authority_data, signing, _ = material.encode(held)
    read = material.decode(material.Data({**serving, **authority_data, **signing}, signing=signing))
    assert read == Material(leaf=held.leaf, signing_keys=held.signing_keys)
    assert material.decode(material.Data({**serving, **signing}, {})).signing_keys.keys == ()


def test_a_leaf_with_another_servers_names_is_replaced():
    held, _ = advance(Material(), NOW)
    both = apply(held._replace(leaf=None), Step.SIGN, Names((*NAMES.webhook, *NAMES.allocator)), now=NOW).leaf
    repaired, taken = advance(held._replace(leaf=both), NOW)
    assert taken == [Step.SIGN]
    assert authority.names(repaired.leaf.certificate) == set(NAMES.webhook)


def test_a_certificate_beside_a_leaf_is_not_an_authority():
    held, _ = advance(Material(), NOW)
    other, _ = advance(Material(), NOW)
    whole = material.encode(held)
    planted = {"next.crt": other.authority.certificate, "next.key": other.authority.key}
    for name in ("serving", "signing"):
        data = getattr(whole, name) | planted
        assert material.decode(whole._replace(**{name: data})) == held


def test_leaves_still_served_after_a_remake_are_trusted():
    held, _ = advance(Material(), NOW)
    remade = apply(held, Step.REMAKE, NAMES, now=NOW)
    assert trusts(remade.bundle, held.leaf.certificate)


def test_the_bundle_holds_both_authorities_while_one_follows_the_other():
    held, _ = advance(Material(), NOW)
    introduced = apply(held, Step.INTRODUCE, NAMES, now=NOW)
    switched = apply(introduced, Step.SWITCH, NAMES, now=NOW)
    assert len(x509.load_pem_x509_certificates(introduced.bundle)) == 2
    assert set(switched.bundle.split(b"-----BEGIN")) == set(introduced.bundle.split(b"-----BEGIN"))


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
@pytest.mark.parametrize("entry", sorted(material.ENTRIES - material.SIGNING_KEYS))
def test_a_secret_damaged_by_hand_is_repaired(entry, damage):
    held, _ = advance(Material(), NOW)
    damaged = material.Data(*(data | {entry: damage} for data in material.encode(held)))
    repaired, _ = advance(material.decode(damaged), NOW)
    assert x509.load_pem_x509_certificates(repaired.bundle)
    assert trusts(repaired.bundle, repaired.leaf.certificate)
    assert repaired.phase is RotationPhase.STEADY


def test_a_certificate_with_a_key_of_another_pair_is_replaced():
    held, _ = advance(Material(), NOW)
    other, _ = advance(Material(), NOW)
    whole, others = material.encode(held), material.encode(other)
    mixed = whole.serving | {"tls.key": others.serving["tls.key"]}
    _, taken = advance(material.decode(whole._replace(serving=mixed)), NOW)
    assert taken == [Step.SIGN]


def test_a_new_name_to_serve_under_gets_a_new_leaf():
    held, _ = advance(Material(), NOW)
    seen = material.view(
        held, NAMES._replace(webhook=[*NAMES.webhook, "drawbridge.elsewhere.svc"]), bundle_everywhere=True
    )
    assert step(seen, now=NOW, policy=POLICY) is Step.SIGN


@pytest.mark.parametrize("other", ["webhook", "allocator"])
def test_only_the_leaf_that_is_due_is_renewed(other):
    held, _ = advance(Material(), NOW)
    later, _ = advance(held, NOW + POLICY.leaf_life * 0.7)
    due = held._replace(leaf=later.leaf) if other == "allocator" else held._replace(allocator=later.allocator)
    repaired, taken = advance(due, NOW + POLICY.leaf_life * 0.8)
    assert taken == [Step.SIGN]
    assert (repaired.leaf == due.leaf, repaired.allocator == due.allocator) == (
        other == "allocator",
        other == "webhook",
    )


def test_a_leaf_never_outlives_its_authority():
    signer = authority.authority("a", now=NOW, life=dt.timedelta(days=10))
    made = authority.leaf(signer, NAMES.webhook, now=NOW, life=dt.timedelta(days=90))
    assert authority.span(made.certificate).end == authority.span(signer.certificate).end


def test_openssl_accepts_the_pair_and_the_bundle(tmp_path):
    held, _ = advance(Material(), dt.datetime.now(dt.UTC))
    (tmp_path / "crt").write_bytes(held.leaf.certificate)
    (tmp_path / "key").write_bytes(held.leaf.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "crt", tmp_path / "key")
    client = ssl.create_default_context(cadata=held.bundle.decode())
    assert len(client.get_ca_certs()) == 1


def test_the_allocator_has_its_own_leaf_under_the_same_authority():
    held, _ = advance(Material(), NOW)
    assert authority.names(held.allocator.certificate) == set(NAMES.allocator)
    assert not set(NAMES.allocator) & authority.names(held.leaf.certificate)
    assert trusts(held.bundle, held.allocator.certificate)
    serving, authority_data, signing, allocator = material.encode(held)
    for key, others in (
        (held.allocator.key, (serving, authority_data, signing)),
        (held.leaf.key, (authority_data, signing, allocator)),
    ):
        assert not any(key in value for data in others for value in data.values())


@pytest.mark.parametrize("lost", [None, {}, {"tls.crt": b"x"}], ids=["gone", "empty", "damaged"])
def test_an_allocator_leaf_is_issued_only_for_an_allocator(lost):
    held, _ = advance(Material(), NOW)
    whole = material.encode(held)._replace(allocator=lost)
    repaired, taken = advance(material.decode(whole), NOW)
    assert taken == [Step.SIGN]
    assert trusts(repaired.bundle, repaired.allocator.certificate)
    assert apply(held, Step.SIGN, Names(NAMES.webhook), now=NOW).allocator is None
    assert not material.encode(Material(leaf=held.leaf)).allocator


@pytest.mark.parametrize("name", ["leaf", "allocator"])
def test_the_leaf_expiring_first_determines_the_renewal_of_both(name):
    held, _ = advance(Material(), NOW)
    aged = authority.leaf(
        held.authority,
        NAMES.webhook if name == "leaf" else NAMES.allocator,
        now=NOW - dt.timedelta(days=70),
        life=POLICY.leaf_life,
    )
    renewed, taken = advance(held._replace(**{name: aged}), NOW)
    assert taken == [Step.SIGN]
    assert getattr(renewed, name) not in (aged, getattr(held, name))
