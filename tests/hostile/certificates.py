"""Certificates for the TLS cases, made on the spot."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority of the test's own; `bundle` is the file a sender trusts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"test authority {folder.name}")  # of two with one name, OpenSSL asks the wrong one
        certificate = self._sign(_builder(self._name, self._name, self._key, 30 * _DAY), ca=True)
        self.bundle = str(folder / "ca.pem")
        Path(self.bundle).write_bytes(certificate.public_bytes(Encoding.PEM))

    def stranger(self) -> "Authority":
        """Another authority, which nobody trusts."""
        folder = self._folder / "stranger"
        folder.mkdir(exist_ok=True)
        return Authority(folder)

    def server_context(self, *names: str, valid_for: datetime.timedelta = 30 * _DAY) -> ssl.SSLContext:
        """A server's TLS context with a certificate for these names or addresses, expired when negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(names[0]), self._name, key, valid_for)
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), False)
        return self._context(self._sign(builder, ca=False), key)

    def self_signed_context(self, name: str) -> ssl.SSLContext:
        """A server's TLS context with a certificate that nobody vouches for."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), _name(name), key, 30 * _DAY)
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name)]), False)
        return self._context(builder.sign(key, SHA256()), key)

    def _sign(self, builder: x509.CertificateBuilder, *, ca: bool) -> x509.Certificate:
        constraints = x509.BasicConstraints(ca=ca, path_length=None)
        return builder.add_extension(constraints, True).sign(self._key, SHA256())

    def _context(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
        path = self._folder / f"{certificate.serial_number}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid_for: datetime.timedelta
) -> x509.CertificateBuilder:
    end = datetime.datetime.now(datetime.UTC) + valid_for
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 60 * _DAY)
        .not_valid_after(end)
    )
