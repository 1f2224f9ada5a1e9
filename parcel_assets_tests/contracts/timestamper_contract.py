"""What every timestamper must do; a module offers `timestamper` and the `roots` it signs under.

Lies of an authority are tested beside the adapter: a fake has none of its own.
"""

import hashlib
import time

from parcel_assets.adapters.timestamp_rfc3161 import read_token
from parcel_assets.core.timestamps import Timestamper

CLOCK_SECONDS = 5.0


class TimestamperContract:
    """A subclass defines the fixtures `timestamper` and `roots`."""

    def test_a_token_is_over_the_digest_of_exactly_the_message(
        self, timestamper: Timestamper
    ) -> None:
        token = timestamper.stamp(b"what is stamped")
        assert token.digest == hashlib.sha256(b"what is stamped").hexdigest()
        assert timestamper.stamp(b"another").digest != token.digest

    def test_it_says_whose_it_is_and_when_it_was_made(self, timestamper: Timestamper) -> None:
        token = timestamper.stamp(b"x")
        assert abs(token.at_seconds - time.time()) < CLOCK_SECONDS
        assert token.authority == "CN=An authority"

    def test_what_it_says_is_what_anybody_reads_in_its_bytes(
        self, timestamper: Timestamper, roots: bytes
    ) -> None:
        token = timestamper.stamp(b"x")
        assert read_token(token.content, roots) == token

    def test_the_same_message_is_stamped_anew(self, timestamper: Timestamper) -> None:
        assert timestamper.stamp(b"x").content != timestamper.stamp(b"x").content
