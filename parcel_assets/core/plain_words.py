"""What a person may type into a record: text that every page and terminal shows as it is."""

import unicodedata

# these show nothing, but some scripts need them between letters, and symbols after them
_JOINERS, _STYLES = "\u200c\u200d", set(map(chr, range(0xFE00, 0xFE10)))
# letters and marks by their class that show nothing or a blank
_FILLERS = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSHOWN = {"Cc", "Co", "Cs", "Cf", "Zl", "Zp"}  # these reorder, hide or mean nothing by themselves


def odd_character(text: str) -> str | None:
    """Return the first character that hides or forges what is shown, in words, or None.

    These are line breaks and other control characters, lone surrogates (bytes that were no UTF-8),
    marks that reorder text, and what shows nothing: two names that look alike would be two.
    """
    for place, one in enumerate(text):
        before, after = text[max(0, place - 1) : place], text[place + 1 : place + 2]
        if one in _JOINERS:
            odd = not (_joins(before) and _joins(after))
        elif one in _STYLES:
            odd = not before or unicodedata.category(before) != "So"
        else:
            odd = one in _FILLERS or unicodedata.category(one) in _UNSHOWN
        if odd:
            return f"U+{ord(one):04X} as character {place + 1}"
    return None


def _joins(neighbour: str) -> bool:
    """Say whether a joiner beside this letter may be needed: never in the Latin of ASCII."""
    return not neighbour.isascii() and neighbour not in _JOINERS
