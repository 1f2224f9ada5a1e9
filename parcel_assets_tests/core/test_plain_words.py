"""What a person types shows as it is: nothing hidden in it, and never nothing at all."""

import pytest

from parcel_assets.core.decision_rules import words_fault
from parcel_assets.core.plain_words import odd_character

ZERO_WIDTH_JOINER = "\u200d"


@pytest.mark.parametrize(
    "text",
    [
        "Ada Example",
        "José Łukasz Ñandú",
        "Zoë O'Brien-Müller",
        "山田 太郎",
        "ಶ್ರೀ‍ಮತಿ",  # Kannada with a joiner between two of its letters
        "نامه‌ای",  # Persian with a non-joiner
        "👩‍🔧 repairs",
        "⚠️ wet",
    ],
)
def test_names_of_many_scripts_are_plain(text: str) -> None:
    assert odd_character(text) is None


@pytest.mark.parametrize(
    "text",
    [
        ZERO_WIDTH_JOINER,
        f"A{ZERO_WIDTH_JOINER}da",
        f"José{ZERO_WIDTH_JOINER}",
        f"山{ZERO_WIDTH_JOINER}{ZERO_WIDTH_JOINER}田",
        "\u3164",
        "Ada\u2800",
        "\u115f",
        "\u034f",
        "Ada\ufe0f",
        "José\ufe0f",
        "\ue000",
        "Ada\u202eowner",
        "Ada\nowner",
        "\udcff",
    ],
)
def test_what_shows_nothing_or_something_else_is_odd(text: str) -> None:
    assert odd_character(text) is not None
    words = {"name": text, "role": "owner", "reason": "corners matter", "scope": ""}
    fault = words_fault("close", {**words, "expires_on": ""})
    assert fault is not None, "nobody decides under such a name"
