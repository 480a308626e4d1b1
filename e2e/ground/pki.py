"""The keys of one test cluster: an authority, a serving certificate for its address, and the service account key."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SERVICE = "10.96.0.1"  # the first address of the Service range


def write(folder: Path, address: str = "127.0.0.1") -> None:
    """Write ca.crt, server.crt, server.key, accounts.key and accounts.pub into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, server, accounts = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root = name("drawbridge-e2e")
    ca = (
        builder(root, root, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    hosts = x509.SubjectAlternativeName(
        [
            x509.IPAddress(ipaddress.ip_address(address)),
            x509.IPAddress(ipaddress.ip_address(SERVICE)),
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
        ]
    )
    leaf = builder(name("kube-apiserver"), root, server.public_key()).add_extension(hosts, critical=False)
    (folder / "ca.crt").write_bytes(pem(ca))
    (folder / "server.crt").write_bytes(pem(leaf.sign(authority, hashes.SHA256())))
    private(folder / "server.key", server)
    private(folder / "accounts.key", accounts)
    public = accounts.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "accounts.pub").write_bytes(public)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=30))
    )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
