"""What a person may type into a record: text that every page and terminal shows as it is."""

import unicodedata

# joiners that some scripts need; all else of this class reorders or hides text
_NEEDED = "\u200c\u200d"
_UNSHOWN = {"Cc", "Cs", "Cf", "Zl", "Zp"}


def odd_character(text: str) -> str | None:
    """Return the first character that hides or forges what is shown, in words, or None.

    These are line breaks and other control characters, lone surrogates (bytes that were no UTF-8),
    and marks that reorder text.
    """
    for number, one in enumerate(text, start=1):
        if one not in _NEEDED and unicodedata.category(one) in _UNSHOWN:
            return f"U+{ord(one):04X} as character {number}"
    return None
