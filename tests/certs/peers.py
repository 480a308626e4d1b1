"""Client certificates for tests of authentication."""

import datetime as dt
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.mutual import Files
from tests.webhook import tls


def certificate(name, signer=None):
    """Return a client certificate and its key. `signer` signs the certificate; without a signer, it is a self-signed authority."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signing_key = (signer[0].subject, signer[1]) if signer else (subject, key)
    client_certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    return client_certificate, key


def pem(certificate_to_write, key=None):
    text = certificate_to_write.public_bytes(serialization.Encoding.PEM)
    if key is not None:
        none = serialization.NoEncryption()
        text += key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)
    return text


class Peers:
    """The certificate files of an allocator and of a scheduler that connects to the allocator. Each side has its own authority."""

    def __init__(self, folder, name="scheduler"):
        self.folder = folder
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.ca, self.client_ca, self.scheduler_cert, self.scheduler_key = (
            folder / f"{name}.pem" for name in ("ca", "client-ca", "scheduler", "scheduler-key")
        )
        self.clients = certificate("clients")
        self.renew()
        self.client_ca.write_bytes(pem(self.clients[0]))
        self.replace_client_certificate(name)

    def renew(self):
        """Replace the allocator's authority and its certificate."""
        signer, leaf = tls.authority_and_leaf()
        self.cert.write_bytes(leaf.certificate)
        self.key.write_bytes(leaf.key)
        self.ca.write_bytes(signer.certificate)

    def replace_client_certificate(self, name, signer=None):
        """Give the scheduler another client certificate."""
        client_certificate, key = certificate(name, signer or self.clients)
        self.scheduler_cert.write_bytes(pem(client_certificate))
        self.scheduler_key.write_bytes(
            pem(client_certificate, key)
        )  # a reader of the key must skip the certificate that precedes the key

    @property
    def files(self):
        return Files(str(self.cert), str(self.key), str(self.client_ca))

    @property
    def settings(self):
        """Return the settings of an allocator for these files."""
        return dict(zip(("tls_cert", "tls_key", "client_ca"), self.files, strict=True))

    def context(self, *, has_certificate=True):
        """Return the TLS context of the scheduler, with its client certificate unless `has_certificate` is false."""
        tls_context = ssl.create_default_context(cafile=self.ca)
        if has_certificate:
            tls_context.load_cert_chain(self.scheduler_cert, self.scheduler_key)
        return tls_context
