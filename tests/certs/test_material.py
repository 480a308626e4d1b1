"""The content of the certificate Secrets (`certs.material`) and its changes during rotations. A leaf is a serving certificate."""

import datetime as dt
import itertools

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs import authority, material
from certs.material import Material, Names
from certs.rotation import LEADS_TO, RotationPhase, RotationStep, step
from tests.certs.stores import DAY, NAMES, NOW, POLICY

KEY_NUMBERS = itertools.count()


def new_signing_key():
    return b"%032d" % next(KEY_NUMBERS)


def apply(pki, next_step, names, *, now):
    return material.apply(pki, next_step, names, now=now, policy=POLICY, new_signing_key=new_signing_key)


def advance(pki, now):
    """Take all due steps, as the store does; return the new material and the steps."""
    pki, steps = material.ensure_signing_key(pki, new_signing_key), []
    while len(steps) < 5 and (
        next_step := step(material.view(pki, NAMES, bundle_everywhere=True), now=now, policy=POLICY)
    ):
        pki = apply(pki, next_step, NAMES, now=now)
        steps.append(next_step)
    return pki, steps


def is_trusted(bundle, leaf):
    signers = x509.load_pem_x509_certificates(bundle)
    return any(authority.signed_by(leaf, signer.public_bytes(Encoding.PEM)) for signer in signers)


def test_material_survives_a_round_trip_through_secrets():
    pki, _ = advance(Material(), NOW)
    pki = apply(pki, RotationStep.INTRODUCE, NAMES, now=NOW)
    assert material.decode(material.encode(pki)) == pki


def test_each_step_leads_to_the_phase_in_the_table():
    pki, _ = advance(Material(), NOW)
    for next_step in (RotationStep.INTRODUCE, RotationStep.SWITCH, RotationStep.RETIRE, RotationStep.REMAKE):
        pki = apply(pki, next_step, NAMES, now=NOW)
        assert pki.phase is LEADS_TO[next_step]
    assert apply(Material(), RotationStep.REMAKE, NAMES, now=NOW).phase is RotationPhase.STEADY, (
        "a REMAKE without an old authority must lead to STEADY"
    )


def test_a_signing_key_is_distributed_before_use_and_kept_after():
    """For five lifetimes of an authority, replicas whose material is a day older or newer accept a replica's signatures."""
    pki, now, history = Material(), NOW, []
    for _ in range(1500):
        pki, _ = advance(pki, now)
        history.append(pki.signing_keys)
        now += DAY
    for before, after in itertools.pairwise(history):
        assert before.keys[0] in after.keys
        assert after.keys[0] in before.keys
    assert len({keys.current for keys in history}) >= 5
    days_of_keys = [
        [day for day, keys in enumerate(history) if key in keys.keys]
        for key in {signing_keys.current for signing_keys in history[:700]}
    ]
    assert min(len(days) for days in days_of_keys) > 300, "a signing key must stay valid for more than 300 days"


def test_an_authority_is_read_from_its_own_secret_only():
    pki, _ = advance(Material(), NOW)
    serving, authority_data, signing, _ = material.encode(pki)
    decoded = material.decode(material.Data({**serving, **authority_data, **signing}, signing=signing))
    assert decoded == Material(leaf=pki.leaf, signing_keys=pki.signing_keys)
    assert material.decode(material.Data({**serving, **signing}, {})).signing_keys.keys == ()


def test_a_leaf_that_also_has_the_allocators_name_is_replaced():
    pki, _ = advance(Material(), NOW)
    names = Names((*NAMES.webhook, *NAMES.allocator))
    leaf_with_both_names = apply(pki._replace(leaf=None), RotationStep.SIGN, names, now=NOW).leaf
    repaired, steps = advance(pki._replace(leaf=leaf_with_both_names), NOW)
    assert steps == [RotationStep.SIGN]
    assert authority.names(repaired.leaf.certificate) == set(NAMES.webhook)


def test_an_authority_planted_in_another_secret_is_ignored():
    pki, _ = advance(Material(), NOW)
    other_pki, _ = advance(Material(), NOW)
    secrets = material.encode(pki)
    planted_entries = {"next.crt": other_pki.authority.certificate, "next.key": other_pki.authority.key}
    for name in ("serving", "signing"):
        data = getattr(secrets, name) | planted_entries
        assert material.decode(secrets._replace(**{name: data})) == pki


def test_leaves_still_served_after_a_remake_are_trusted():
    pki, _ = advance(Material(), NOW)
    remade = apply(pki, RotationStep.REMAKE, NAMES, now=NOW)
    assert is_trusted(remade.bundle, pki.leaf.certificate)


def test_the_bundle_holds_both_authorities_while_one_follows_the_other():
    pki, _ = advance(Material(), NOW)
    introduced = apply(pki, RotationStep.INTRODUCE, NAMES, now=NOW)
    switched = apply(introduced, RotationStep.SWITCH, NAMES, now=NOW)
    assert len(x509.load_pem_x509_certificates(introduced.bundle)) == 2
    assert set(switched.bundle.split(b"-----BEGIN")) == set(introduced.bundle.split(b"-----BEGIN"))


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
@pytest.mark.parametrize("entry", sorted(material.ENTRIES - material.SIGNING_KEYS))
def test_a_secret_damaged_by_hand_is_repaired(entry, damage):
    pki, _ = advance(Material(), NOW)
    damaged = material.Data(*(data | {entry: damage} for data in material.encode(pki)))
    repaired, _ = advance(material.decode(damaged), NOW)
    assert x509.load_pem_x509_certificates(repaired.bundle)
    assert is_trusted(repaired.bundle, repaired.leaf.certificate)
    assert repaired.phase is RotationPhase.STEADY


def test_a_certificate_with_a_key_of_another_pair_is_replaced():
    pki, _ = advance(Material(), NOW)
    other_pki, _ = advance(Material(), NOW)
    secrets, other_secrets = material.encode(pki), material.encode(other_pki)
    mixed = secrets.serving | {"tls.key": other_secrets.serving["tls.key"]}
    _, steps = advance(material.decode(secrets._replace(serving=mixed)), NOW)
    assert steps == [RotationStep.SIGN]


def test_a_new_service_name_requires_a_new_leaf():
    pki, _ = advance(Material(), NOW)
    names = NAMES._replace(webhook=[*NAMES.webhook, "drawbridge.elsewhere.svc"])
    view = material.view(pki, names, bundle_everywhere=True)
    assert step(view, now=NOW, policy=POLICY) is RotationStep.SIGN


def test_an_allocator_without_names_has_no_leaf():
    pki, _ = advance(Material(), NOW)
    assert apply(pki, RotationStep.SIGN, Names(NAMES.webhook), now=NOW).allocator is None
    assert not material.encode(Material(leaf=pki.leaf)).allocator


@pytest.mark.parametrize("due_leaf", ["webhook", "allocator"])
def test_only_the_leaf_that_is_due_is_renewed(due_leaf):
    pki, _ = advance(Material(), NOW)
    pki_with_new_leaves, _ = advance(pki, NOW + POLICY.leaf_life * 0.7)
    due, other = ("allocator", "leaf") if due_leaf == "allocator" else ("leaf", "allocator")
    pki_with_one_due_leaf = pki._replace(**{other: getattr(pki_with_new_leaves, other)})
    repaired, steps = advance(pki_with_one_due_leaf, NOW + POLICY.leaf_life * 0.8)
    assert steps == [RotationStep.SIGN]
    assert getattr(repaired, other) == getattr(pki_with_one_due_leaf, other)
    assert getattr(repaired, due) != getattr(pki_with_one_due_leaf, due)


def test_a_leaf_never_outlives_its_authority():
    signer = authority.authority("a", now=NOW, life=dt.timedelta(days=10))
    leaf = authority.leaf(signer, NAMES.webhook, now=NOW, life=dt.timedelta(days=90))
    assert authority.span(leaf.certificate).end == authority.span(signer.certificate).end


def test_the_allocator_has_its_own_leaf_under_the_same_authority():
    pki, _ = advance(Material(), NOW)
    assert authority.names(pki.allocator.certificate) == set(NAMES.allocator)
    assert not set(NAMES.allocator) & authority.names(pki.leaf.certificate)
    assert is_trusted(pki.bundle, pki.allocator.certificate)
    serving, authority_data, signing, allocator = material.encode(pki)
    for key, secrets_without_key in (
        (pki.allocator.key, (serving, authority_data, signing)),
        (pki.leaf.key, (authority_data, signing, allocator)),
    ):
        assert not any(key in value for data in secrets_without_key for value in data.values())
