"""A timestamp authority on this machine, honest or lying, and a fake one in memory.

Tokens are made here byte by byte after RFC 3161 and 5652, so that a test chooses their time and
what is wrong with them; openssl and the package read them as they read anybody's.
"""

import functools
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from rfc3161_client import _rust

from parcel_assets.core.timestamps import Token

SHA256, ECDSA_SHA256 = "2.16.840.1.101.3.4.2.1", "1.2.840.10045.4.3.2"
TST_INFO, SIGNED_DATA = "1.2.840.113549.1.9.16.1.4", "1.2.840.113549.1.7.2"
CONTENT_TYPE, MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"
SIGNING_CERTIFICATE = "1.2.840.113549.1.9.16.2.47"
Answer = Callable[[bytes], tuple[int, bytes]]  # query -> HTTP status and body
REFUSED = bytes.fromhex("30053003020102")  # status: rejection, and no token


# ---- DER ----------------------------------------------------------------------------------------


def der(tag: int, *contents: bytes) -> bytes:
    body = b"".join(contents)
    size = len(body)
    if size < 128:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 128 + len(length)]) + length + body


def sequence(*contents: bytes) -> bytes:
    return der(0x30, *contents)


def integer(value: int) -> bytes:
    return der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def identifier(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    out = bytearray()
    for number in (40 * first + second, *rest):
        part = [number & 127]
        while number := number >> 7:
            part.append(128 | number & 127)
        out += bytes(reversed(part))
    return der(0x06, bytes(out))


# ---- certificates and tokens --------------------------------------------------------------------


@dataclass(frozen=True)
class Signer:
    """A root, a certificate below it that may sign timestamps, and its key."""

    root: x509.Certificate
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def root_pem(self) -> bytes:
        return self.root.public_bytes(Encoding.PEM)

    @property
    def name(self) -> str:
        return self.certificate.subject.rfc4514_string()

    def token(
        self,
        digest: bytes,
        *,
        nonce: int | None = None,
        at_seconds: float | None = None,
        algorithm: str = SHA256,
        further_certificates: bool = False,
    ) -> bytes:
        """Return a whole answer: a status and a token over the digest."""
        moment = datetime.fromtimestamp(time.time() if at_seconds is None else at_seconds, UTC)
        info = sequence(
            integer(1),
            identifier("1.2.3.4.1"),
            sequence(sequence(identifier(algorithm), der(0x05)), der(0x04, digest)),
            integer(int(hashlib.sha256(digest).hexdigest()[:12], 16)),
            der(0x18, moment.strftime("%Y%m%d%H%M%SZ").encode()),
            b"" if nonce is None else integer(nonce),
        )
        sha256 = sequence(identifier(SHA256), der(0x05))
        certificate = self.certificate.public_bytes(Encoding.DER)
        chain = [certificate]
        if further_certificates:  # in no order that DER knows
            chain = sorted([certificate, self.root.public_bytes(Encoding.DER)], reverse=True)
        certificate_hash = der(0x04, hashlib.sha256(certificate).digest())
        attributes = sorted(
            sequence(identifier(name), der(0x31, value))
            for name, value in (
                (CONTENT_TYPE, identifier(TST_INFO)),
                (MESSAGE_DIGEST, der(0x04, hashlib.sha256(info).digest())),
                (SIGNING_CERTIFICATE, sequence(sequence(sequence(certificate_hash)))),
            )
        )
        signature = self.key.sign(der(0x31, *attributes), ec.ECDSA(hashes.SHA256()))
        issuer = self.certificate.issuer.public_bytes()
        signer = sequence(
            integer(1),
            sequence(issuer, integer(self.certificate.serial_number)),
            sha256,
            der(0xA0, *attributes),
            sequence(identifier(ECDSA_SHA256)),
            der(0x04, signature),
        )
        signed = sequence(
            integer(3),
            der(0x31, sha256),
            sequence(identifier(TST_INFO), der(0xA0, der(0x04, info))),
            der(0xA0, *chain),
            der(0x31, signer),
        )
        token = sequence(identifier(SIGNED_DATA), der(0xA0, signed))
        return sequence(sequence(integer(0)), token)


@functools.cache
def signer(name: str = "An authority", *, until: int = 2100, purpose: bool = True) -> Signer:
    """Return a signer of that name; `until` is the year that its certificate ends with."""
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Root of {name}")])
    root = (
        _certificate(root_name, root_name, root_key, 2100)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    use = ExtendedKeyUsageOID.TIME_STAMPING if purpose else ExtendedKeyUsageOID.CODE_SIGNING
    certificate = (
        _certificate(own, root_name, key, until)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    return Signer(root, certificate, key)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(until, 12, 31, tzinfo=UTC))
    )


# ---- the authority ------------------------------------------------------------------------------


@dataclass
class Authority:
    """What listens; `answer` may be replaced by a lie."""

    url: str
    signer: Signer
    answer: Answer
    queries: list[bytes] = field(default_factory=list)


def honest(own: Signer, **changes: Any) -> Answer:
    """Return what answers each query with a token; `changes` override what it says."""

    def answer(query: bytes) -> tuple[int, bytes]:
        asked = _rust.parse_timestamp_request(query)
        said = {"digest": asked.message_imprint.message, "nonce": asked.nonce} | changes
        return 200, own.token(**said)

    return answer


@contextmanager
def listening(own: Signer | None = None) -> Iterator[Authority]:
    """Let an honest authority listen on this machine."""
    own = own or signer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            authority.queries.append(query)
            status, body = authority.answer(query)
            self.send_response(status)
            self.send_header("Content-Type", "application/timestamp-reply")
            if 300 <= status < 400:
                self.send_header("Location", authority.url)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    authority = Authority(f"http://127.0.0.1:{server.server_port}/tsr", own, honest(own))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield authority
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class FakeTimestamper:
    """Signs in memory, by a clock that a test gives; `lie` may raise or return another token."""

    def __init__(self, now: Callable[[], float], own: Signer | None = None) -> None:
        self._now = now
        self._own = own or signer()
        self.stamped: list[bytes] = []
        self.lie: Callable[[Token], Token] = lambda token: token

    def stamp(self, message: bytes) -> Token:
        at = float(int(self._now()))
        digest = hashlib.sha256(message)
        token = self._own.token(digest.digest(), at_seconds=at, nonce=len(self.stamped) + 1)
        self.stamped.append(message)
        return self.lie(Token(token, digest.hexdigest(), self._own.name, at))
