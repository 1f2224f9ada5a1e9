"""An authority that is away, slow or lying: nothing it says is taken, and the refusal says why."""

import hashlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from parcel_assets.adapters.timestamp_rfc3161 import (
    ANSWER_BYTES_MAXIMUM,
    Rfc3161Timestamper,
    read_token,
)
from parcel_assets.core.errors import SettingError, TimestampError
from parcel_assets_tests.timestamp_authority import (
    REFUSED,
    Answer,
    Authority,
    Signer,
    honest,
    listening,
    signer,
)

MESSAGE = b"the newest event"
OTHER_DIGEST = hashlib.sha256(b"another").digest()
SHA512 = "2.16.840.1.101.3.4.2.3"


@pytest.fixture
def authority() -> Iterator[Authority]:
    with listening() as one:
        yield one


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root.pem"
    path.write_bytes(signer().root_pem)
    return path


def flipped(content: bytes) -> bytes:
    """Return an answer whose signature, its last field, has one bit changed."""
    return content[:-1] + bytes([content[-1] ^ 1])


EXPIRED, SIGNS_CODE = signer("Expired", until=2020), signer("Signs code", purpose=False)


def lies(own: Signer) -> dict[str, tuple[Answer, str]]:
    """Return by name what an authority may answer, and the words of the refusal."""
    return {
        "another digest": (honest(own, digest=OTHER_DIGEST), "a token over"),
        "another nonce": (honest(own, nonce=12345), "Nonce mismatch"),
        "no nonce": (honest(own, nonce=None), "Nonce mismatch"),
        "another hash": (honest(own, algorithm=SHA512), f"a token over a {SHA512}"),
        "a stranger's root": (honest(signer("A stranger")), "unable to get local issuer"),
        "an expired certificate": (honest(EXPIRED), "certificate has expired"),
        "a certificate for other purposes": (honest(SIGNS_CODE), "purpose"),
        "a broken signature": (lambda asked: (200, flipped(honest(own)(asked)[1])), "signature"),
        "certificates in no order": (honest(own, further_certificates=True), "not in DER's order"),
        "a refusal": (lambda _: (200, REFUSED), "no token"),
        "garbage": (lambda _: (200, b"<html>hello"), "no token"),
        "nothing": (lambda _: (200, b""), "no token"),
        "too much": (lambda _: (200, b"x" * (ANSWER_BYTES_MAXIMUM + 2)), "more than 64 KiB"),
        "a server's fault": (lambda _: (500, b""), "HTTP status 500"),
        "a redirect": (lambda _: (302, b""), "HTTP status 302"),
    }


@pytest.mark.parametrize("lie", lies(signer()))
def test_a_lie_is_refused_in_words(authority: Authority, root: Path, lie: str) -> None:
    authority.answer, words = lies(authority.signer)[lie]
    root.write_bytes(root.read_bytes() + EXPIRED.root_pem + SIGNS_CODE.root_pem)
    with pytest.raises(TimestampError, match=words) as refused:
        Rfc3161Timestamper(authority.url, root).stamp(MESSAGE)
    assert "Nothing was recorded" in refused.value.remedy
    assert len(authority.queries) == 1


def test_a_token_of_an_earlier_request_is_refused(authority: Authority, root: Path) -> None:
    asked = Rfc3161Timestamper(authority.url, root)
    earlier = asked.stamp(MESSAGE).content
    authority.answer = lambda _: (200, earlier)
    with pytest.raises(TimestampError, match="Nonce mismatch"):
        asked.stamp(MESSAGE)


def test_nobody_there_is_said(root: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(TimestampError, match=r"no answer \(.*refused"):
        Rfc3161Timestamper(f"http://127.0.0.1:{port}/", root).stamp(MESSAGE)


DRIPS = {
    "nothing": (b"", b""),
    "the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
    "the status line": (b"HTTP/1.1 200 ", b"x"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X"),
    "announcements of an answer": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a chunk's size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_authority_that_hangs_or_drips_is_waited_for_so_long(root: Path, drip: str) -> None:
    first, piece = DRIPS[drip]
    ended = threading.Event()

    def hang(server: socket.socket) -> None:
        with server.accept()[0] as caller:
            caller.recv(65_536)
            caller.sendall(first)
            for _ in range(100):  # who waits for longer hears that it was hung up
                if ended.wait(0.05):
                    return
                try:
                    caller.sendall(piece)
                except OSError:
                    return

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=hang, args=[server], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        try:
            with pytest.raises(TimestampError, match=r"no whole answer in 0.3 s"):
                Rfc3161Timestamper(url, root, timeout_seconds=0.3).stamp(MESSAGE)
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_root_file_that_holds_none_is_a_wrong_setting(
    authority: Authority, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "root.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError, match="no certificate"):
        Rfc3161Timestamper(authority.url, path).stamp(MESSAGE)
    assert not authority.queries


def test_without_a_root_a_token_is_read_and_nothing_more(authority: Authority, root: Path) -> None:
    token = Rfc3161Timestamper(authority.url, root).stamp(MESSAGE)
    assert read_token(token.content, None) == token
    stranger = signer("A stranger").root_pem
    with pytest.raises(TimestampError, match="does not verify"):
        read_token(token.content, stranger)


def test_openssl_verifies_what_was_taken(authority: Authority, root: Path, tmp_path: Path) -> None:
    token = Rfc3161Timestamper(authority.url, root).stamp(MESSAGE)
    (tmp_path / "token.tsr").write_bytes(token.content)
    (tmp_path / "message").write_bytes(MESSAGE)
    told = subprocess.run(
        ["openssl", "ts", "-verify", "-data", "message", "-in", "token.tsr", "-CAfile", "root.pem"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Verification: OK" in told.stdout, told.stderr
