"""What an honest coordinator would never have written: rules of the fold, for the audit.

A chain whose digests are right may still say what no search does: an attempt under an old fence, a
report of an attempt that had ended, a stage made from evidence that was not on record. The search
itself refuses such things before it writes; here they are looked for in what was written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from parcel_assets.core.codec import short
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.ledger_audit import AuditFault
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.search import SearchState
from parcel_assets.core.stage import Stage
from parcel_assets.core.trial import AttemptStarted

Words = tuple[str, str]  # found, expected


class FoldAudit:
    """Folds a chain and says, event by event, what could not have been written honestly."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = SearchState(plan)
        self._fence = 0
        self._evidence: dict[str, str] = {}
        self._prefixes: set[str] = set()

    def take(self, event: Event) -> Words | None:
        """Return what is wrong with the next event, or None, and fold it.

        Raises what the fold raises where the event cannot be folded at all.
        """
        rule = _RULES.get(event.kind)
        words = None if rule is None else rule(self, event.body)
        self.state.apply(event)
        return words

    def _plan(self, body: Mapping[str, Any]) -> Words | None:
        if body["plan_digest"] != self.plan.digest:
            found = f"plan digest {short(str(body['plan_digest']))}"
            return found, f"{short(self.plan.digest)}, the digest of the plan beside it"
        return None

    def _stage(self, body: Mapping[str, Any]) -> Words | None:
        stage = Stage(body["stage"])
        for earlier in stage.earlier:
            given = body["inputs"].get(str(earlier))
            if given != self._evidence.get(str(earlier)):
                on_record = short(self._evidence.get(str(earlier), "none"))
                return (
                    f"{stage} made from evidence {short(str(given))} of {earlier}",
                    f"evidence {on_record}, which was on record",
                )
        self._evidence[str(stage)] = str(body["evidence"])
        return None

    def _batch(self, body: Mapping[str, Any]) -> Words | None:
        number, numbers = body["batch"], [one["number"] for one in body["trials"]]
        first = self.state.proposed + 1
        if number != len(self.state.batches) + 1:
            return f"batch {number}", f"batch {len(self.state.batches) + 1}"
        if numbers != list(range(first, first + len(numbers))):
            return f"trials {numbers}", f"trials numbered from {first} on"
        if self.state.proposed + len(numbers) > self.plan.search.budget_trials:
            return (
                f"{self.state.proposed + len(numbers)} trials",
                f"at most {self.plan.search.budget_trials}, the plan's budget",
            )
        return self._search_goes_on("a batch")

    def _search_goes_on(self, what: str) -> Words | None:
        if self.state.ended is not None:
            return f"{what} after the search had ended", "nothing more of the search"
        return None

    def _attempt_started(self, body: Mapping[str, Any]) -> Words | None:
        started = AttemptStarted.model_validate(body)
        before, self._fence = self._fence, max(self._fence, started.fence)
        if started.fence < before:
            return f"fence {started.fence}", f"fence {before} or newer: an older one is stale"
        if started.prefix in self._prefixes:
            return f"prefix {started.prefix} again", "a prefix of its own for each attempt"
        self._prefixes.add(started.prefix)
        if started.purpose != "search":
            return None
        subject = self.state.subjects.get(started.subject)
        if subject is None or subject.trial is None:
            return f"an attempt at {started.subject}", "a trial that a batch has proposed"
        if subject.finished is not None:
            return f"an attempt at {started.subject}, which has finished", "a trial still open"
        return self._search_goes_on("a trial's attempt")

    def _of_open_attempt(self, body: Mapping[str, Any]) -> Words | None:
        record = self.state.attempts.get(str(body["attempt"]))
        if record is None:
            return f"the unknown attempt {body['attempt']}", "an attempt that was started before"
        if record.ended is not None:
            return f"word of {record.attempt} after its end", "an attempt that is open"
        if body["subject"] != record.subject:
            return f"subject {body['subject']}", f"{record.subject}, as the attempt was started"
        return None

    def _attempt_ended(self, body: Mapping[str, Any]) -> Words | None:
        words = self._of_open_attempt(body)
        if words is not None:
            return words
        started = self.state.attempts[str(body["attempt"])].started
        charged, reserved = float(body["charged_seconds"]), started.reserved_seconds
        if not 0 <= charged <= reserved:
            return f"a charge of {charged} s", f"at most the {reserved} s that were reserved"
        if body["purpose"] != started.purpose:
            return f"purpose {body['purpose']}", f"{started.purpose}, as the attempt was started"
        return None

    def _batch_closed(self, body: Mapping[str, Any]) -> Words | None:
        if body["batch"] not in self.state.batches:
            return f"the unknown batch {body['batch']} closed", "a batch that was opened"
        return None


_RULES = {
    Kind.PLAN_FROZEN: FoldAudit._plan,
    Kind.STAGE_RECORDED: FoldAudit._stage,
    Kind.BATCH_OPENED: FoldAudit._batch,
    Kind.ATTEMPT_STARTED: FoldAudit._attempt_started,
    Kind.MILESTONE_REPORTED: FoldAudit._of_open_attempt,
    Kind.CHECKPOINT_SAVED: FoldAudit._of_open_attempt,
    Kind.ATTEMPT_ENDED: FoldAudit._attempt_ended,
    Kind.BATCH_CLOSED: FoldAudit._batch_closed,
}


def fold_faults(events: Sequence[Event]) -> Iterator[AuditFault]:
    """Yield what no coordinator would have written; the chain itself is taken as verified."""
    if not events:
        return
    try:
        plan = plan_from_fields(events[0].body["plan"], where="frozen plan")
    except (ParcelAssetsError, KeyError, TypeError) as error:
        kind = str(events[0].kind)
        yield AuditFault("fold", f"a plan that does not read ({error})", "a plan", 1, kind)
        return
    audit = FoldAudit(plan)
    for event in events:
        try:
            words = audit.take(event)
        except (ParcelAssetsError, ValidationError, KeyError, TypeError, ValueError) as error:
            told = error.found if isinstance(error, ParcelAssetsError) else repr(error)
            words = (f"what cannot be folded: {told}", "an event that its kind describes")
            yield AuditFault("fold", *words, event.sequence, str(event.kind))
            return
        if words is not None:
            yield AuditFault("fold", *words, event.sequence, str(event.kind))
