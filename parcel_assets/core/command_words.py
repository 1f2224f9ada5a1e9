"""How our own commands stand in what is printed: as they must be typed where they are read.

Sentences of every layer name commands in their plain form, `parcel-assets run REVISION`. What the
reader must add to it, such as the data folder, only the place that prints them knows.
"""

import re
import shlex
from dataclasses import dataclass

NAME = "parcel-assets"
_COMMAND = re.compile(r"(?<![\w/.-])parcel-assets(?= (?P<word>[a-z][a-z-]*))")
_STARTS_WORKERS = {"run", "demo"}


@dataclass(frozen=True, slots=True)
class Called:
    """How the command line is called in one place; None is what needs not be said there."""

    program: str = NAME
    data: str | None = None
    workers: int | None = None
    engine: str | None = None

    def command(self, word: str = "") -> str:
        """Return the words that come before a command's name."""
        words = [shlex.quote(self.program)]
        if self.data is not None:
            words += ["--data", shlex.quote(self.data)]
        if word in _STARTS_WORKERS and self.workers is not None:
            words += ["--workers", str(self.workers)]
        if word in _STARTS_WORKERS and self.engine is not None:
            words += ["--engine", shlex.quote(self.engine)]
        return " ".join(words)

    def pasteable(self, text: str) -> str:
        """Return the text with every command in it as it must be typed here."""
        return _COMMAND.sub(lambda found: self.command(found["word"]), text)


PLAIN = Called()
