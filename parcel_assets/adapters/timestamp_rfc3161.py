"""Asks a timestamp authority over HTTP, and reads and checks its tokens, after RFC 3161.

What a token must be over, and when, is decided in core.timestamps. A certificate is asked to hold
at the token's own time; whether it was revoked is not asked.
"""

import http.client
import re
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import SettingError, TimestampError
from parcel_assets.core.timestamps import Token

SHA256 = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")
TIMEOUT_SECONDS = 20.0  # for the whole answer; a lease lives longer
ANSWER_BYTES_MAXIMUM = 64 << 10


class Rfc3161Timestamper:
    """One authority by its URL, and the PEM file with the root under which it must sign.

    Redirects are not followed: an answer comes from who was asked.
    """

    def __init__(self, url: str, root: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._url = url
        self._root = root
        self._timeout_seconds = timeout_seconds
        self._where = f"timestamp authority {urlsplit(url).hostname}"

    def stamp(self, message: bytes) -> Token:
        """Return a checked token over the SHA-256 of the message; raises TimestampError."""
        roots = _read_roots(self._root)
        request = TimestampRequestBuilder(
            data=message, hash_algorithm=HashAlgorithm.SHA256, nonce=True, cert_req=True
        ).build()
        token = read_token(self._ask(request.as_bytes()), roots, request.nonce)
        if token.digest != digest_bytes(message):
            raise self._refused(f"a token over {token.digest[:8]}", f"{digest_bytes(message)[:8]}")
        return token

    def _ask(self, query: bytes) -> bytes:
        """Return the authority's answer, at most so many bytes and in so many seconds.

        A socket's own timeout begins anew with every byte, of a header or of a handshake too: who
        waits for the whole answer waits beside the one who reads it, and leaves in time.
        """
        answer: Future[bytes] = Future()

        def read() -> None:
            try:
                answer.set_result(self._post(query))
            except (OSError, http.client.HTTPException, ValueError) as error:
                answer.set_exception(error)

        threading.Thread(target=read, name="timestamp", daemon=True).start()
        try:
            content = answer.result(self._timeout_seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(f"HTTP status {error.code}", "200 with a token") from error
        except TimeoutError as error:
            raise self._refused(f"no whole answer in {self._timeout_seconds:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self._refused(f"no answer ({reason})") from error
        if len(content) > ANSWER_BYTES_MAXIMUM:
            raise self._refused(f"more than {ANSWER_BYTES_MAXIMUM >> 10} KiB", "a token")
        return content

    def _post(self, query: bytes) -> bytes:
        """Return what is answered to a query, a little more than a token may have at most."""
        request = urllib.request.Request(  # noqa: S310 - settings admit https and loopback only
            self._url,
            data=query,
            headers={
                "Content-Type": "application/timestamp-query",
                "Accept": "application/timestamp-reply",
            },
        )
        with self._opener().open(request, timeout=self._timeout_seconds) as answer:
            content: bytes = answer.read(ANSWER_BYTES_MAXIMUM + 1)
        return content

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[Any] = [_NoRedirect]
        if urlsplit(self._url).scheme == "http":  # this very machine: no proxy in between
            handlers.append(urllib.request.ProxyHandler({}))
        return urllib.request.build_opener(*handlers)

    def _refused(self, found: str, expected: str = "an answer with a token") -> TimestampError:
        return refusal(found, expected, self._where)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_given: Any, **_named: Any) -> None:
        """Follow nothing; the redirect's status is then an error."""


def read_token(content: bytes, roots: bytes | None, nonce: int | None = None) -> Token:
    """Return what an authority's answer says.

    Signature, certificates and their purpose are checked where PEM roots are given, and then only.
    Raises TimestampError for anything that is no granted token over a SHA-256.
    """
    try:
        answer = decode_timestamp_response(content)
        info = answer.tst_info
        imprint = info.message_imprint
        token = Token(content, imprint.message.hex(), _signer(answer), info.gen_time.timestamp())
        if imprint.hash_algorithm != SHA256:
            raise refusal(f"a token over a {imprint.hash_algorithm.dotted_string}", "a SHA-256")
        if roots is not None:
            certificates = x509.load_pem_x509_certificates(roots)
            verifier = VerifierBuilder(roots=certificates, nonce=nonce).build()
            verifier.verify(answer, imprint.message)
    except VerificationError as error:
        raise refusal(
            f"a token that does not verify ({_first_words(error)})",
            "one that is signed under the trusted root, for this very request",
        ) from error
    except ValueError as error:
        raise refusal(f"no token ({_first_words(error)})", "an RFC 3161 answer") from error
    return token


def require_roots(pem: bytes, where: str) -> None:
    """Raise SettingError where bytes hold no PEM certificate."""
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise _no_root(_first_words(error), where) from error


def _read_roots(path: Path) -> bytes:
    try:
        roots = path.read_bytes()
    except OSError as error:
        raise _no_root(error.strerror or str(error), str(path)) from error
    require_roots(roots, str(path))
    return roots


def _no_root(reason: str, where: str) -> SettingError:
    return SettingError(
        f"no certificate ({reason})",
        expected="the timestamp authority's root certificate in PEM",
        where=where,
        remedy="Get it from the authority itself, and name its file.",
    )


def refusal(
    found: str, expected: str, where: str = "timestamp authority's answer"
) -> TimestampError:
    """Return the refusal of an answer; what was asked for is not recorded."""
    return TimestampError(
        found,
        expected=expected,
        where=where,
        remedy="Nothing was recorded, nothing was opened: run again when the authority answers "
        "well, or name another one in PARCEL_ASSETS_TIMESTAMP_URL. To go on without for good, set "
        "it to `none`: the packet then says so.",
    )


def _signer(answer: TimeStampResponse) -> str:
    """Return the subject of the certificate that the one signature names, or what it names."""
    named = list(answer.signed_data.signer_infos)
    if len(named) != 1:
        raise ValueError(f"{len(named)} signatures")
    for content in answer.signed_data.certificates:
        certificate = x509.load_der_x509_certificate(content)
        if (certificate.issuer, certificate.serial_number) == (
            named[0].issuer,
            named[0].serial_number,
        ):
            return certificate.subject.rfc4514_string()
    return f"number {named[0].serial_number} of {named[0].issuer.rfc4514_string()}"


def _first_words(error: Exception) -> str:
    """Return an error's reason; OpenSSL's stands inside a list of its own."""
    if "InvalidSetOrdering" in str(error):
        return (
            "its set of certificates is not in DER's order, which this reader asks for: take an "
            "authority that sends its own certificate only, or sorts them"
        )
    words = str(error).partition("\n")[0]
    inner = re.search(r'Verify error: ([^"]+)', words) or re.search(r'reason: "([^"]+)"', words)
    return inner[1] if inner else words[:200] or type(error).__name__
