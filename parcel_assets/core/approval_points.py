"""Whether a public key is a point of its curve that only the owner of a private key can sign for.

A library takes any 32 bytes for an Ed25519 key. Some are no point at all, so that no signature can
hold; eight points (and odd spellings of them) are of small order, so that anybody can write one
that does. P-256 has no such points but the one that its encoding leaves out.
"""

# the curve of P-256: y² = x³ - 3x + constant, modulo the prime
_P256_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
_P256_CONSTANT = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
# the curve of Ed25519: y² - x² = 1 + d x² y², modulo the prime
_ED_PRIME = 2**255 - 19
_ED_D = -121665 * pow(121666, -1, _ED_PRIME) % _ED_PRIME
_COFACTOR_DOUBLINGS = 3  # a point of small order is 0 after three doublings


def p256_fault(point: bytes) -> str | None:
    """Return what is wrong with the 64 bytes (x, y) of a P-256 key, or None."""
    x, y = int.from_bytes(point[:32]), int.from_bytes(point[32:])
    is_on_curve = (y * y - (x * x * x - 3 * x + _P256_CONSTANT)) % _P256_PRIME == 0
    if max(x, y) < _P256_PRIME and is_on_curve:
        return None
    return "is no point of P-256: a digit was mistyped"


def ed25519_fault(point: bytes) -> str | None:
    """Return what is wrong with the 32 bytes (y, sign of x) of an Ed25519 key, or None."""
    y = int.from_bytes(point, "little") & (2**255 - 1)  # without the sign
    square = _x_squared(y)
    is_square = pow(square, (_ED_PRIME - 1) // 2, _ED_PRIME) in (0, 1)
    if y >= _ED_PRIME or not is_square:
        return "is no point of Ed25519: a digit was mistyped"
    for _ in range(_COFACTOR_DOUBLINGS):
        square = _x_squared(y)
        y = (y * y + square) * pow(2 - y * y + square, -1, _ED_PRIME) % _ED_PRIME
    if y == 1:
        return "is an Ed25519 point of small order: anybody can sign for it"
    return None


def _x_squared(y: int) -> int:
    """Return x² of the points with this y; whether it is a square is not asked."""
    return (y * y - 1) * pow(_ED_D * y * y + 1, -1, _ED_PRIME) % _ED_PRIME
