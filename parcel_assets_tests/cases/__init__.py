"""Cases from public trackers of tools like ours, by number, each with the right outcome.

B-numbers are reports of others, O-numbers what we reproduced in current releases ourselves. Each
number is the name of a test (`test_b02_…`), or stands below with the reason why it cannot be one.
"""

B_NUMBERS = (
    1, 2, 3, 4, 6, 7, 9, 11, 12, 14, 15, 17, 18, 19, 20, 21, 22, 25, 26, 27, 28, 29, 30, 32, 33, 34,
    35, 37, 38, 39, 41, 42, 44, 46, 48, 49, 52, 53, 54, 55, 56, 58, 59, 60,
)  # fmt: skip
NUMBERS = (*(f"b{number:02d}" for number in B_NUMBERS), *(f"o{number}" for number in range(1, 11)))

NOT_APPLICABLE: dict[str, str] = {}
