"""Every refusal this package makes: what was found, what was expected, where, and what to do next.

Errors are named by who must act. They carry their facts as fields, so that a page, a log line and
a JSON answer can show them, and they survive pickling across process borders.
"""

import traceback
from typing import Any

WORDS_CHARACTERS_MAXIMUM = 2000


class ParcelAssetsError(Exception):
    """A refusal with its four parts: `found`, `expected`, `where` and `remedy`.

    `facts` holds further fields (JSON values) for machines.
    """

    def __init__(self, found: str, *, expected: str, where: str, remedy: str, **facts: Any) -> None:
        self.found = found
        self.expected = expected
        self.where = where
        self.remedy = remedy
        self.facts = facts
        # parts may be whole sentences; joined into one they lose their full stops
        ended, wanted = found.rstrip("."), expected.rstrip(".")
        super().__init__(f"{where}: found {ended}; expected {wanted}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            self.found,
            self.expected,
            self.where,
            self.remedy,
            self.facts,
        )

    def as_fields(self) -> dict[str, Any]:
        """Return the error as JSON fields, for `--json`, metadata and logs."""
        return {
            "error": type(self).__name__,
            "found": self.found,
            "expected": self.expected,
            "where": self.where,
            "remedy": self.remedy,
            **self.facts,
        }


def _rebuild(  # noqa: PLR0917 (pickle calls it by position)
    kind: type[ParcelAssetsError],
    found: str,
    expected: str,
    where: str,
    remedy: str,
    facts: dict[str, Any],
) -> ParcelAssetsError:
    return kind(found, expected=expected, where=where, remedy=remedy, **facts)


class HoldError(ParcelAssetsError):
    """A stop, not a fault: `facts["hold"]` names it; evidence or a decision lifts it."""


class PlanError(ParcelAssetsError):
    """The plan's author must act: `facts["faults"]` lists every fault with its dotted path."""


class PlanChangedError(PlanError):
    """A used revision was offered other content (S1); `facts["field"]` is the first difference."""


class ArchiveError(ParcelAssetsError):
    """The data owner must act: `facts["rows"]` lists every refused row."""


class SnapshotChangedError(ArchiveError):
    """The archive no longer is what was pinned (D2)."""


class SplitError(ParcelAssetsError):
    """The split breaks a rule of the data (D1, D3) or the plan's minimum support."""


class SettingError(ParcelAssetsError):
    """The operator must act: a setting, a missing tool, a full disk."""


def refused_by_the_system(error: OSError) -> SettingError:
    """Return what the operating system refused, in our words: no room, no right, a lost disk."""
    words = error.strerror or str(error)
    where = str(error.filename or "this machine")
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError):
        return SettingError(
            words,
            expected="folders where folders belong, and files where files do",
            where=where,
            remedy="Look what lies at this path or above it, and move it aside.",
        )
    return SettingError(
        words,
        expected="room, and the right to read and write",
        where=where,
        remedy="Mend the folder or the disk, then run again: it goes on from here.",
    )


class NoWorkerError(SettingError):
    """No worker is left to go on with: this run pauses, the next one goes on."""


class WorkerError(SettingError):
    """A worker process can no longer do its part; another one can."""


class StorageError(SettingError):
    """A file could not be written or does not hold what its name says."""


class LedgerError(ParcelAssetsError):
    """The ledger refuses: broken chain, wrong event, closed revision."""


class LeaseHeldError(LedgerError):
    """Another live process writes this revision."""


class StaleFenceError(LedgerError):
    """The writer's lease has been taken over; it may append nothing more (S5)."""


class IdentityError(ParcelAssetsError):
    """A worker is not what the plan says (S4); `facts["field"]` names the field."""


class CheckpointError(ParcelAssetsError):
    """A checkpoint's lineage or bytes do not verify (S6)."""


class ReportError(ParcelAssetsError):
    """A worker's message breaks the protocol: skipped milestone, repeated or impossible step."""


class TrainingError(ParcelAssetsError):
    """A trial's own failure: NaN loss, a user's module that raises."""


class EvidenceError(ParcelAssetsError):
    """The arrays offered cannot carry the statement asked of them (empty, one class, NaN)."""


class AdmissionError(ParcelAssetsError):
    """A gate before this stage does not pass now; `facts["gate"]` names it (idea 3)."""


class DispositionError(ParcelAssetsError):
    """Bad input to `parcel_search_disposition`."""


class DecisionError(ParcelAssetsError):
    """A quality decision is refused: wrong evidence, expired, or too late."""


class HoldoutError(ParcelAssetsError):
    """The vault stays shut (H5, H6, H7)."""


class TimestampError(ParcelAssetsError):
    """A timestamp authority gave no token that holds; nothing was recorded."""


class PacketError(ParcelAssetsError):
    """The packet does not verify; `facts["file"]` names the first bad file."""


class RegistryError(ParcelAssetsError):
    """The registry refuses the model (R1)."""


def words_of(error: BaseException) -> str:
    """Return any error's class and text, as a message can carry them: bounded, and text."""
    text = "".join(traceback.format_exception_only(error)).strip()
    return text[:WORDS_CHARACTERS_MAXIMUM].encode(errors="replace").decode()
