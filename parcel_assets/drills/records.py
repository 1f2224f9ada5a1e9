"""What a drill says: what was injected, what was seen, and each question with its answer."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from parcel_assets.core.errors import ParcelAssetsError


class DrillError(ParcelAssetsError):
    """The incident could not be brought about; says nothing about the search."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One act from outside, and the ledger's newest event at that moment."""

    words: str
    sequence: int
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Check:
    """One question about the outcome; `answer` says what was found either way."""

    question: str
    passed: bool
    answer: str


@dataclass(slots=True)
class Report:
    """Everything a drill found; it passes if there are checks and all of them pass."""

    name: str
    injections: list[Injection] = field(default_factory=list)
    detected: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)  # what was quarantined, lost, run again
    checks: list[Check] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def ask(self, *checks: Check) -> None:
        """Take in answers."""
        self.checks += checks

    @property
    def passed(self) -> bool:
        """Whether the outcome is the right one."""
        return bool(self.checks) and all(one.passed for one in self.checks)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON fields."""
        return {
            "drill": self.name,
            "passed": self.passed,
            "seconds": round(self.seconds, 1),
            "injected": [
                {"what": one.words, "after_event": one.sequence} for one in self.injections
            ],
            "detected": self.detected,
            "settled": self.settled,
            "checks": [
                {"question": one.question, "passed": one.passed, "answer": one.answer}
                for one in self.checks
            ],
            "evidence": self.evidence,
        }


def listed(words: Iterable[object]) -> str:
    """Return words with commas between them, or `none`."""
    return ", ".join(str(one) for one in words) or "none"
