"""A cluster's certificate authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = datetime.timedelta(days=365)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its private key, in PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs for one cluster; lives in a folder, and is made there on first use."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.pair.certificate

    @property
    def pair(self) -> Pair:
        pair = self._files("ca")
        if not pair.key.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            key = ec.generate_private_key(ec.SECP256R1())
            builder = _builder("tuneyard-test-ca", (), key, _YEAR).issuer_name(_name("tuneyard-test-ca", ()))
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            _write(pair, key, builder.sign(key, hashes.SHA256()))
        return pair

    def issue(
        self,
        name: str,
        *,
        groups: Iterable[str] = (),
        addresses: Iterable[str] = (),
        hosts: Iterable[str] = (),
        valid: datetime.timedelta = _YEAR,
    ) -> Pair:
        """A certificate for a client (`name` is its user, `groups` its groups) that also serves at `addresses` and `hosts`."""
        authority = self.pair
        signer = serialization.load_pem_private_key(authority.key.read_bytes(), None)
        issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses), *(x509.DNSName(each) for each in hosts)]
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = _builder(name, groups, key, valid).issuer_name(issuer.subject).add_extension(uses, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair = self._files(name.replace(":", "-"))
        _write(pair, key, builder.sign(signer, hashes.SHA256()))
        return pair

    def service_account_keys(self) -> Pair:
        """The key that signs service-account tokens, and its public half (in `certificate`)."""
        pair = Pair(self.folder / "service-accounts.pub", self.folder / "service-accounts.key")
        if not pair.key.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            form = serialization.PublicFormat.SubjectPublicKeyInfo
            pair.certificate.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
            _write_key(pair.key, key)
        return pair

    def _files(self, name: str) -> Pair:
        return Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")


def _name(name: str, groups: Iterable[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(name: str, groups: Iterable[str], key: ec.EllipticCurvePrivateKey, valid: datetime.timedelta) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject_name=_name(name, groups), public_key=key.public_key())
    # An hour back: the test of an expired certificate asks for a validity below zero.
    return (
        builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + valid)
    )


def _write(pair: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
