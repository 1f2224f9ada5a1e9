"""Which public keys a plan may list: points of their curve that one private key alone signs for."""

import base64
from collections.abc import Mapping

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from parcel_assets.adapters.approval_keys import signature_holds
from parcel_assets.core.approval_points import ed25519_fault, p256_fault
from parcel_assets.core.errors import PlanError
from parcel_assets_tests.core.plans import plan as small_plan

PRIME = 2**255 - 19
HEAD = bytes.fromhex("302a300506032b6570032100")
NEGATIVE = 2**255  # the sign of x stands in the last bit
EIGHTHS = (
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
)


def spelled(y: int) -> bytes:
    return y.to_bytes(32, "little")


def _eighth(text: str, sign: int) -> bytes:
    return (int.from_bytes(bytes.fromhex(text), "little") + sign).to_bytes(32, "little")


# the points whose order divides eight, in the one spelling that each should have
SMALL_ORDER: Mapping[str, bytes] = {
    "order 1": spelled(1),
    "order 2": spelled(PRIME - 1),
    "order 4, x positive": spelled(0),
    "order 4, x negative": spelled(NEGATIVE),
    "order 8, first": _eighth(EIGHTHS[0], 0),
    "order 8, first, x negative": _eighth(EIGHTHS[0], NEGATIVE),
    "order 8, second": _eighth(EIGHTHS[1], 0),
    "order 8, second, x negative": _eighth(EIGHTHS[1], NEGATIVE),
}
# the same points spelled oddly: y beyond the prime, or a sign where x is 0
ODDLY_SPELLED: Mapping[str, bytes] = {
    "order 1, y too large": spelled(PRIME + 1),
    "order 1, y too large, with a sign": spelled(PRIME + 1 + NEGATIVE),
    "order 1, with a sign": spelled(1 + NEGATIVE),
    "order 2, with a sign": spelled(PRIME - 1 + NEGATIVE),
    "order 4, y too large": spelled(PRIME),
    "order 4, y too large, with a sign": spelled(PRIME + NEGATIVE),
}


def listed(point: bytes) -> None:
    """Read a plan that lists an approver by this Ed25519 point."""
    key = base64.b64encode(HEAD + point).decode()
    small_plan(approvers={"Ada Example": {"role": "quality owner", "public_key": key}})


@pytest.mark.parametrize("name", SMALL_ORDER)
def test_a_key_that_anybody_can_sign_for_is_refused_when_the_plan_is_read(name: str) -> None:
    with pytest.raises(PlanError, match="of small order: anybody can sign for it") as refused:
        listed(SMALL_ORDER[name])
    assert refused.value.facts["faults"][0]["path"] == "approvers.Ada Example"


@pytest.mark.parametrize("name", ODDLY_SPELLED)
def test_an_odd_spelling_of_such_a_key_is_refused_too(name: str) -> None:
    with pytest.raises(PlanError, match=r"public_key is (an|no) .*Ed25519"):
        listed(ODDLY_SPELLED[name])


@pytest.mark.parametrize("name", SMALL_ORDER)
def test_the_library_alone_would_take_a_signature_that_nobody_made(name: str) -> None:
    """For some text, R = the key's own point or 0 and s = 0 make a signature without a secret."""
    key = base64.b64encode(HEAD + SMALL_ORDER[name]).decode()
    forgeries = [one + bytes(32) for one in SMALL_ORDER.values()]
    assert any(
        signature_holds(key, f"accept, variant {number}".encode(), forged)
        for number in range(32)
        for forged in forgeries
    )


def test_a_mistyped_key_is_no_point() -> None:
    faults = [ed25519_fault(spelled(y)) for y in range(2, 60)]
    assert any(fault is None for fault in faults)
    assert any(fault is not None and "mistyped" in fault for fault in faults)


def test_a_point_has_one_spelling() -> None:
    for y in range(19):  # all that fit into 255 bits once more, with the prime added
        assert "is no point" in str(ed25519_fault(spelled(PRIME + y)))


def test_keys_that_a_library_makes_are_taken() -> None:
    for _ in range(20):
        made = ed25519.Ed25519PrivateKey.generate().public_key()
        raw = made.public_bytes(Encoding.Raw, PublicFormat.Raw)
        assert ed25519_fault(raw) is None
        listed(raw)
        curve = ec.generate_private_key(ec.SECP256R1()).public_key()
        point = curve.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
        assert p256_fault(point) is None
        assert p256_fault(point[:-1] + bytes([point[-1] ^ 1])) is not None
