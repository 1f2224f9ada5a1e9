"""HTML and inline SVG as values: whatever is not markup already is escaped, by construction."""

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "img", "br", "hr", "line", "rect", "circle", "path", "polyline"})


class Markup(str):
    """Text that is safe to stand in a page; only this module makes it."""

    __slots__ = ()


Child = str | int | float | None


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: Child) -> Markup:
    """Return an element; `class_` and `data_x` name attributes, None leaves one out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not children:
        return Markup(
            f"<{name}{shown}>" if name in {"meta", "img", "br", "hr"} else f"<{name}{shown}/>"
        )
    return Markup(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Child | Iterable[Child]) -> Markup:
    """Return children one after the other, escaped where they are not markup."""
    pieces: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            pieces.append(child)
        elif isinstance(child, str | int | float):
            pieces.append(escape(_plain(child), quote=True))
        else:
            pieces.append(join(*child))
    return Markup("".join(pieces))


def raw(text: str) -> Markup:
    """Return text of our own (a style sheet) as markup; never anything from outside."""
    return Markup(text)


def _plain(value: Child) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
