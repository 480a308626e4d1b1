"""Creates CAs and the serving certificates that they sign: ECDSA P-256, PEM in and out.

This module uses no clock and no files: `now` is an argument, keys and certificates are values. `certs.rotation` decides when to create
which certificate, and `certs.store` writes it. Key usages are those that kube-apiserver's webhook client verifies.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.rotation import SKEW, Span

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence


class Pair(NamedTuple):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


def authority(name: str, *, now: dt.datetime, life: dt.timedelta) -> Pair:
    """Create a self-signed CA that can sign serving certificates, but no further CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    created_at = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    subject = _subject(f"{name} {created_at}")
    extensions = (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(signs=True), True),
    )
    return _signed(key, subject, extensions, subject, key, now=now, life=life)


def leaf(issuer: Pair, names: Sequence[str], *, now: dt.datetime, life: dt.timedelta) -> Pair:
    """Sign a serving certificate for DNS names and IP addresses. It expires no later than its CA."""
    signer = x509.load_pem_x509_certificate(issuer.certificate)
    signing_key = serialization.load_pem_private_key(issuer.key, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not ECDSA: delete the Secret and let drawbridge make a new one")  # noqa: TRY004  bad data, not a bad call
    key = ec.generate_private_key(ec.SECP256R1())
    remaining_life = signer.not_valid_after_utc - now
    life = min(life, remaining_life)
    subject = _subject(names[0][:64])
    authority_key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    extensions = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([_san(name) for name in names]), False),
        (authority_key_id, False),
    )
    return _signed(key, subject, extensions, signer.subject, signing_key, now=now, life=life)


def span(certificate: bytes) -> Span:
    """Return the lifetime of a certificate since its creation, which is SKEW after its notBefore."""
    parsed = x509.load_pem_x509_certificate(certificate)
    return Span(parsed.not_valid_before_utc + SKEW, parsed.not_valid_after_utc)


def names(certificate: bytes) -> frozenset[str]:
    """Return the DNS names and IP addresses of a serving certificate."""
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        san = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(san.get_values_for_type(x509.DNSName)) | {str(a) for a in san.get_values_for_type(x509.IPAddress)}


def signed_by(certificate: bytes, issuer: bytes) -> bool:
    """Report whether a CA signed a certificate."""
    child, parent = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(issuer)
    try:
        child.verify_directly_issued_by(parent)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def matches(pair: Pair) -> bool:
    """Report whether key and certificate belong together; in a Secret edited by hand they may not."""
    key = serialization.load_pem_private_key(pair.key, password=None)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    return bool(key.public_key() == certificate.public_key())


def _signed(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    issuer: x509.Name,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    now: dt.datetime,
    life: dt.timedelta,
) -> Pair:
    """Sign a certificate for a key. Each extension has a flag that says whether it is critical."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return Pair(
        builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _subject(common_name: str) -> x509.Name:
    attribute = x509.NameAttribute(NameOID.COMMON_NAME, common_name)
    return x509.Name([attribute])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
