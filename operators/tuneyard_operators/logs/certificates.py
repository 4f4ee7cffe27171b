"""Makes the serving certificate of the API of logs, and the authority that API servers trust it by. Pure: time and names are arguments.

Each certificate is signed by an authority of its own. The authority's key is dropped at once, so that it never signs anything else. The
bundle of authorities also holds the previous authority: replicas that serve the older certificate for another minute stay trusted.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=365)
_RENEWED_BEFORE = datetime.timedelta(days=120)
_CLOCKS_DIFFER = datetime.timedelta(hours=1)
_UNREADABLE = (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension)
"""Errors on an unreadable Secret: a new certificate replaces its content."""
_ONE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


@dataclass(frozen=True)
class Serving:
    """PEM texts; `authorities`: the certificate's own authority first."""

    certificate: str
    key: str
    authorities: str

    def to_data(self) -> dict[str, str]:
        return {"tls.crt": self.certificate, "tls.key": self.key, "ca.crt": self.authorities}

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Serving | None:
        """The certificate in a Secret's data; None if one of the three entries is missing."""
        found = [data.get(name, "") for name in ("tls.crt", "tls.key", "ca.crt")]
        return cls(*found) if all(found) else None

    def is_good(self, host: str, now: datetime.datetime) -> bool:
        """Whether the certificate is readable, issued for `host` by the first authority, for this key, and not due to be renewed."""
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate.encode())
            authority = x509.load_pem_x509_certificate(self.authorities.encode())
            key = serialization.load_pem_private_key(self.key.encode(), None)
            certificate.verify_directly_issued_by(authority)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
        except _UNREADABLE:
            return False
        began, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return names == [host] and key.public_key() == certificate.public_key() and began <= now < ends - _RENEWED_BEFORE


def new_serving(host: str, now: datetime.datetime, before: Serving | None = None) -> Serving:
    """A new certificate for `host`. Its bundle holds its own authority, then that of the certificate `before`."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _name(f"tuneyard-logs-ca-{now:%Y%m%d%H%M%S}")
    authority = _signed(authority_name, authority_name, authority_key, authority_key, now, x509.BasicConstraints(ca=True, path_length=0))
    certificate = _signed(
        _name("tuneyard-logs"), authority_name, key, authority_key, now, x509.BasicConstraints(ca=False, path_length=None), host
    )
    older = _ONE.findall(before.authorities)[:1] if before is not None else []
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Serving(_pem(certificate), secret.decode(), "".join([_pem(authority), *older]))


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    constraints: x509.BasicConstraints,
    host: str = "",
) -> x509.Certificate:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - _CLOCKS_DIFFER, now + VALID)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
