"""The rules S2 to S9 once more, from raw events and stored files alone, after every event.

Written from the design, not from the coordinator: it shares no fold, no lineage check, no batch or
charge rule with it, so that a mistake there is not made here as well.
"""

import hashlib
import hmac
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets_tests.simulation.worker import Witness, read_header

LEASE_SECONDS = 20.0
TINY = 1e-5  # seconds and costs are rounded to six digits
ENDS = {"completed", "pruned"}
AFTER_THE_END = {
    "message_set_aside",
    "stage_recorded",
    "worker_refused",
    "attempt_quarantined",
    "contamination_replayed",
}


class BrokenRuleError(BaseException):
    """A rule of the design does not hold; no `except Exception` in the coordinator may hide it."""

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(f"{rule}: {sentence}")
        self.rule = rule


def canonical(value: Any) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(slots=True)
class Attempt:
    """One attempt as events tell it."""

    body: Mapping[str, Any]
    at: float
    since: float  # when the event before it was recorded
    reports: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    saved: list[Mapping[str, Any]] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    clean: bool = True
    late: bool = False
    replayed: bool = False
    cleared: bool = False  # the replay without its values changed no decision
    owes: str = ""  # the attempt that must be quarantined with it
    beside: list[Mapping[str, Any]] = field(default_factory=list)  # reports off the milestones

    @property
    def used(self) -> bool:
        return not self.clean or bool(self.end and self.end["own_failure"])


@dataclass(slots=True)
class Slot:
    """One trial of the budget."""

    number: int
    batch: int
    fields: Mapping[str, Any]
    attempts: list[Attempt] = field(default_factory=list)

    def finished(self) -> Attempt | None:
        return next(
            (one for one in self.attempts if one.clean and one.end and one.end["state"] in ENDS),
            None,
        )

    def reports(self) -> dict[int, Mapping[str, Any]]:
        merged: dict[int, Mapping[str, Any]] = {}
        for attempt in self.attempts:
            if attempt.clean:
                for step, report in attempt.reports.items():
                    merged.setdefault(step, report)
        return merged

    def state(self, attempts_maximum: int, *, over: bool) -> str:
        finished = self.finished()
        if finished is not None and finished.end is not None:
            return str(finished.end["state"])
        if any(one.end is None for one in self.attempts):
            return "running"
        if sum(one.used for one in self.attempts) >= attempts_maximum:
            return "failed" if self.attempts[-1].clean else "quarantined"
        if over and not all(one.clean for one in self.attempts):
            return "quarantined"
        return "waiting"


class Costs:
    """Cost of stored scores at their best threshold, by trying every one; remembered by digest."""

    def __init__(self, plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        metric = plan["metric"]
        self._miss, self._needless = metric["missed_damage"], metric["needless_review"]
        self._damaged = np.array([row["damaged"] for row in rows])
        shipments = [row["shipment_id"] for row in rows]
        key = str(plan["split"]["key"]).encode()
        place = {
            one: hmac.new(key, canonical(["milestone", one]), hashlib.sha256).hexdigest()
            for one in set(shipments)
        }
        ordered = sorted(place, key=lambda one: (place[one], one))
        chosen = set(ordered[: math.ceil(metric["milestone_fraction"] * len(ordered))])
        some = [number for number, one in enumerate(shipments) if one in chosen]
        steps = plan["training"]["steps"]
        self.rows = {step: some for step in plan["training"]["milestones"] if step < steps}
        self.rows[steps] = list(range(len(rows)))
        photos = [row["photo_id"] for row in rows]
        self.subsets = {
            step: sha256(canonical([photos[row] for row in chosen]))
            for step, chosen in self.rows.items()
        }
        self._known: dict[tuple[int, str], float | None] = {}

    def of(self, step: int, digest: str, content: Callable[[str], bytes]) -> float | None:
        """Return the cost per 1,000, None where a score is not finite."""
        if (step, digest) not in self._known:
            self._known[step, digest] = self._measure(step, content(digest))
        return self._known[step, digest]

    def _measure(self, step: int, content: bytes) -> float | None:
        scores = np.frombuffer(content, "<f4").astype(float)
        damaged = self._damaged[self.rows[step]]
        if len(scores) != len(damaged) or not np.isfinite(scores).all():
            return None
        best = math.inf
        for threshold in [*np.unique(scores), np.inf]:
            review = scores >= threshold
            total = (
                self._miss * (damaged & ~review).sum() + self._needless * (review & ~damaged).sum()
            )
            best = min(best, float(total))
        return best * 1000 / len(scores)


_COSTS: dict[str, Costs] = {}  # by plan digest: every world of a plan has the same labels


class Model:
    """Takes in every event as it is appended and raises BrokenRuleError at the first breach."""

    def __init__(self, attempts: Path, content: Callable[[str], bytes], witness: Witness) -> None:
        self._folder = attempts
        self._content = content
        self._witness = witness
        self.plan: Mapping[str, Any] = {}
        self.broken: BrokenRuleError | None = None
        self.ended: str | None = None
        self.slots: dict[int, Slot] = {}
        self.attempts: dict[str, Attempt] = {}
        self.batches: dict[int, Mapping[str, Any]] = {}
        self.closed: set[int] = set()
        self.charged: dict[str, float] = {}
        self._by_trial: dict[str, Slot] = {}
        self._costs: Costs | None = None
        self._identity = ""
        self._admitted: set[str] = set()
        self._refused: set[str] = set()
        self._prefixes: set[str] = set()
        self._fence = 0
        self._sequence = 0
        self._at = 0.0
        self._before = 0.0

    # ---- one event ------------------------------------------------------------------------------

    def take(self, event: Any, fence: int, told: Sequence[Any] | None = None) -> None:
        """Check one event, the fence it came under, and what its writer last told a sampler."""
        try:
            if event.kind == "batch_opened":
                self._check_past(told or ())
            self._take(str(event.kind), event.body, event, fence)
        except BrokenRuleError as error:
            self.broken = self.broken or error
            raise

    def _take(self, kind: str, body: Mapping[str, Any], event: Any, fence: int) -> None:
        self._must("S5", fence >= self._fence, f"fence {fence} writes after {self._fence}")
        self._must("S5", event.sequence == self._sequence + 1, f"event {event.sequence} is no next")
        self._must("S3", event.at_seconds >= self._at, "the ledger's clock runs backwards")
        if event.at_seconds > self._at:
            self._before = self._at  # events of one transaction have one time
        self._fence, self._sequence, self._at = fence, event.sequence, event.at_seconds
        if self.ended is not None:
            self._must("end", kind in AFTER_THE_END, f"{kind} after the search ended")
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            handler(body)
        self._always()

    def _must(self, rule: str, holds: bool, sentence: str) -> None:
        if not holds:
            raise BrokenRuleError(rule, sentence)

    def _always(self) -> None:
        if not self.plan:
            return
        search = self.plan["search"]
        started = sum(bool(one.attempts) for one in self.slots.values())
        self._must("S2", len(self.slots) <= search["budget_trials"], "more slots than the budget")
        self._must("S2", started <= len(self.slots), "more slots started than proposed")
        open_ones = [one for one in self.attempts.values() if one.end is None]
        held = sum(one.body["reserved_seconds"] for one in open_ones)
        charged = self.charged.get("search", 0.0)
        limit = self.search_seconds
        self._must(
            "S3",
            charged + held <= limit + TINY,
            f"{charged:.3f} s charged and {held:.3f} s reserved, above {limit:.3f} s",
        )

    @property
    def search_seconds(self) -> float:
        """The share of the cap that trials may use."""
        return float(self.plan["search"]["cap_accelerator_hours"] * 3600 - self._kept_back)

    @property
    def _kept_back(self) -> float:
        trainings = 2 * (1 + len(self.plan["rerun"]["seeds"])) + 2
        return float(trainings * self.plan["search"]["trial_seconds_maximum"])

    # ---- plan and door --------------------------------------------------------------------------

    def _plan_frozen(self, body: Mapping[str, Any]) -> None:
        self._must("S1", not self.plan, "a second plan")
        self.plan = body["plan"]

    def _stage_recorded(self, body: Mapping[str, Any]) -> None:
        if body["stage"] == "grouped_shipment_split":
            digest = sha256(canonical(self.plan))
            if digest not in _COSTS:
                split = json.loads(self._content(body["evidence"]))["body"]
                rows = json.loads(self._content(split["parts"]["validation"]["rows"]))
                _COSTS[digest] = Costs(self.plan, rows)
            self._costs = _COSTS[digest]

    def _search_opened(self, body: Mapping[str, Any]) -> None:
        kept = body["reserved_after_seconds"]
        self._must("S3", kept == self._kept_back, f"{kept} s kept back, not {self._kept_back}")
        self._identity = sha256(canonical(dict(body["identity"])))

    def _worker_admitted(self, body: Mapping[str, Any]) -> None:
        worker = body["worker_id"]
        wrong = self._witness.misfits.get(worker)
        self._must("S4", wrong is None, f"{worker} admitted although its {wrong} is another")
        self._must("S4", body["identity"] == self._identity, f"{worker} admitted under another one")
        self._must("S4", worker not in self._refused, f"{worker} admitted after its refusal")
        self._admitted.add(worker)

    def _worker_refused(self, body: Mapping[str, Any]) -> None:
        worker, wrong = body["worker_id"], self._witness.misfits.get(body["worker_id"])
        self._must("S4", wrong == body["field"], f"{worker} refused for {body['field']}: {wrong}")
        self._refused.add(worker)

    # ---- batches --------------------------------------------------------------------------------

    def _known(self, batch: int) -> list[Slot]:
        """Return the slots that a batch may know, by number."""
        last = batch - self.plan["search"]["lookahead_batches"]
        return [one for _, one in sorted(self.slots.items()) if one.batch <= last]

    def _state(self, slot: Slot) -> str:
        maximum = self.plan["search"]["attempts_per_trial"]
        return slot.state(maximum, over=self.ended is not None)

    def _check_past(self, past: Sequence[Any]) -> None:
        """Check what the sampler was told for the batch that opens now."""
        batch = len(self.batches) + 1
        known = {one.number for one in self._known(batch)}
        self._must_past(len(past) == len(self.slots), "not all trials are told")
        for told in past:
            slot = self.slots[told.number]
            configuration = slot.fields["configuration"]
            self._must_past(told.configuration == configuration, f"other {told.number}")
            if told.number not in known:
                silent = (told.state, told.cost, dict(told.costs_by_step)) == ("running", None, {})
                self._must_past(silent, f"trial {told.number} is told although it may run", "S8")
                continue
            state = self._state(slot)
            costs = {
                step: report["cost_per_1000"]
                for step, report in slot.reports().items()
                if report["cost_per_1000"] is not None
            }
            ranked = state in ENDS
            self._must_past(told.state == (state if ranked else "failed"), f"{told} is {state}")
            self._must_past(dict(told.costs_by_step) == costs, f"{told} with costs {costs}", "S6")
            cost = costs[max(costs)] if ranked else None
            self._must_past(told.cost == cost, f"{told} with cost {cost}", "S9")

    def _must_past(self, holds: bool, sentence: str, rule: str = "S8") -> None:
        self._must(rule, holds, f"proposal from {sentence}")

    def _batch_opened(self, body: Mapping[str, Any]) -> None:
        search, number = self.plan["search"], body["batch"]
        self._must("S2", number == len(self.batches) + 1, f"batch {number} out of turn")
        first = number - search["lookahead_batches"]
        ready = all(one in self.closed for one in range(1, first + 1))
        self._must("S8", ready, f"batch {number} opens before {first} is closed")
        self._check_cuts(number, body["cut_table"])
        self._must("S2", 0 < len(body["trials"]) <= search["batch_trials"], "a batch of wrong size")
        for trial in body["trials"]:
            place = len(self.slots) + 1
            seed = int(sha256(canonical(["trial", search["seed"], place]))[:16], 16) >> 1
            named = (trial["number"], trial["trial_id"], trial["seed"])
            self._must("S2", named == (place, f"parcel-{place:02d}", seed), f"slot {named}")
            slot = Slot(place, number, trial)
            self.slots[place] = self._by_trial[trial["trial_id"]] = slot
        self.batches[number] = body

    def _check_cuts(self, batch: int, table: Sequence[Mapping[str, Any]]) -> None:
        """Check a cut table against values that its batch may know, exactly at their milestone."""
        pruning, known = self.plan["pruning"], self._known(batch)
        milestones = self.plan["training"]["milestones"][:-1]
        self._must("S7", [one["step"] for one in table] == milestones, "cuts at other steps")
        for cut, keep in zip(table, pruning["keep_fractions"], strict=True):
            values = [
                [slot.number, report["cost_per_1000"]]
                for slot in known
                if (report := slot.reports().get(cut["step"])) is not None
                and report["cost_per_1000"] is not None
            ]
            told = [list(one) for one in cut["values"]]
            if told or cut["cut_cost"] is not None:
                strangers = [one for one in told if one not in values]
                self._must("S7", not strangers, f"cut of batch {batch} from {strangers}")
                self._must("S7", told == values, f"cut of batch {batch} leaves values out")
            if cut["cut_cost"] is None:
                continue
            enough = len(values) >= pruning["minimum_comparable"]
            self._must("S7", enough, f"a cut from {len(values)} values")
            finite = all(math.isfinite(value) for _, value in values)
            self._must("S9", finite, f"a cut from {values}")
            place = max(1, math.ceil(keep * len(values) - 1e-9))
            right = sorted(value for _, value in values)[place - 1]
            self._must("S7", cut["cut_cost"] == right, f"cut {cut['cut_cost']}, not {right}")

    def _batch_closed(self, body: Mapping[str, Any]) -> None:
        number = body["batch"]
        self._must("S6", number not in self.closed, f"batch {number} closes twice")
        for slot in self.slots.values():
            if slot.batch == number:
                state = self._state(slot)
                settled = state not in {"waiting", "running"}
                self._must("S6", settled, f"batch {number} closes, {slot.number} is {state}")
                for attempt in slot.attempts:
                    self._verify(attempt)
        self.closed.add(number)

    def _verify(self, attempt: Attempt) -> None:
        """Check that nothing speaks against an attempt when its batch closes."""
        name = attempt.body["attempt"]
        evidence = self._witness.contaminated.get(name)
        if not attempt.clean:
            if attempt.owes:
                other = self.attempts[attempt.owes]
                self._must("S6", not other.clean, f"{name} alone is quarantined: {attempt.owes}")
            return
        self._must("S6", evidence is None, f"{name} is contaminated ({evidence}) and counts")
        for saved in attempt.saved:
            path = self._folder / attempt.body["prefix"] / saved["file"]
            whole = path.is_file() and sha256(path.read_bytes()) == saved["checkpoint"]
            self._must("S6", whole, f"{saved['file']} of {name} is gone or another, and counts")

    # ---- attempts -------------------------------------------------------------------------------

    def _attempt_started(self, body: Mapping[str, Any]) -> None:
        name, subject, worker = body["attempt"], body["subject"], body["worker_id"]
        slot = self._by_trial.get(subject)
        self._must("S2", slot is not None, f"{subject} is no slot")
        assert slot is not None
        self._must("S2", name not in self.attempts, f"{name} starts twice")
        state = self._state(slot)
        self._must("S2", state == "waiting", f"{name} starts although {subject} is {state}")
        self._must("S4", worker in self._admitted, f"{name} on {worker}, which was not admitted")
        self._must("S4", worker not in self._refused, f"{name} on {worker}, which was refused")
        busy = [one for one in self.attempts.values() if one.body["worker_id"] == worker]
        self._must("S4", all(one.end for one in busy), f"{worker} has another attempt open")
        prefix = body["prefix"]
        self._must("S5", prefix not in self._prefixes, f"prefix {prefix} is given out twice")
        self._must("S5", body["fence"] == self._fence, f"{name} under fence {body['fence']}")
        whole = self.plan["search"]["trial_seconds_maximum"]
        self._must("S3", body["reserved_seconds"] == whole, f"{name} reserves less than {whole}")
        self._check_resume(slot, body)
        self._prefixes.add(prefix)
        attempt = Attempt(body, self._at, self._before)
        self.attempts[name] = attempt
        slot.attempts.append(attempt)

    def _check_resume(self, slot: Slot, body: Mapping[str, Any]) -> None:
        parent, step = body["parent_checkpoint"], body["resume_step"]
        if parent is None:
            self._must("S6", step == 0, f"{body['attempt']} starts at {step} from nothing")
            return
        for attempt in slot.attempts:
            for saved in attempt.saved:
                if attempt.clean and (saved["checkpoint"], saved["step"]) == (parent, step):
                    path = self._folder / attempt.body["prefix"] / saved["file"]
                    whole = path.is_file() and sha256(path.read_bytes()) == parent
                    self._must("S6", whole, f"{body['attempt']} resumes a torn file")
                    return
        raise BrokenRuleError("S6", f"{body['attempt']} resumes what no clean attempt of it saved")

    def _open(self, body: Mapping[str, Any]) -> Attempt:
        attempt = self.attempts.get(body["attempt"])
        self._must("S5", attempt is not None, f"{body['attempt']} was never started")
        assert attempt is not None
        self._must("S5", attempt.end is None, f"{body['attempt']} is settled and goes on")
        return attempt

    def _milestone_reported(self, body: Mapping[str, Any]) -> None:
        attempt, step = self._open(body), body["step"]
        name, training = body["attempt"], self.plan["training"]
        if step not in training["milestones"]:
            inside = 0 < step < training["steps"]
            self._must("S7", inside, f"{name} reports step {step} of {training['steps']}")
            judged = body["verdict"] == "not comparable"
            self._must("S7", judged, f"{name} is judged at {step}, which is no milestone")
            attempt.beside.append(body)
            return
        due = [
            one
            for one in training["milestones"]
            if one > attempt.body["resume_step"] and one not in attempt.reports
        ]
        self._must("S7", bool(due) and step == due[0], f"{name} reports {step}, due is {due[:1]}")
        photos = step * training["batch_photos"]
        self._must("S7", body["photos_seen"] == photos, f"{name} saw {body['photos_seen']} photos")
        assert self._costs is not None
        same = body["subset_digest"] == self._costs.subsets[step]
        self._must("S7", same, f"{name} is judged on other photos")
        slot = self._by_trial[attempt.body["subject"]]
        for other in slot.attempts:
            earlier = other.reports.get(step)
            if other.clean and earlier is not None:
                equal = earlier["scores"] == body["scores"]
                self._must("S8", equal, f"{name} gives other scores than before, and counts")
        cost = self._costs.of(step, body["scores"], self._content)
        self._check_verdict(slot, body, cost)
        attempt.reports[step] = body

    def _check_verdict(self, slot: Slot, body: Mapping[str, Any], cost: float | None) -> None:
        """Check cost and verdict of a report against the frozen cut of its own step (S7, S9)."""
        name, step, told = body["attempt"], body["step"], body["cost_per_1000"]
        if cost is None or told is None:
            self._must("S9", told is cost, f"{name} with cost {told}, not {cost}")
            self._must("S9", body["verdict"] == "stop", f"{name} goes on without a cost")
            return
        self._must("S7", abs(told - cost) < TINY, f"{name} with cost {told}, not {cost}")
        if step == self.plan["training"]["steps"]:
            self._must("S7", body["verdict"] == "continue", f"{name} stopped at the end")
            return
        (cut,) = [one for one in self.batches[slot.batch]["cut_table"] if one["step"] == step]
        warm = slot.number <= self.plan["pruning"]["warm_up_trials"]
        if cut["cut_cost"] is None or warm:
            right = "not comparable"
        else:
            right = "continue" if told <= cut["cut_cost"] else "stop"
        self._must("S7", body["verdict"] == right, f"{name} at {step}: {body['verdict']}")

    def _checkpoint_saved(self, body: Mapping[str, Any]) -> None:
        attempt, name = self._open(body), body["attempt"]
        parts = Path(body["file"]).parts
        below = ".." not in parts and not Path(body["file"]).is_absolute()
        self._must("S5", below, f"{name} writes {body['file']}")
        path = self._folder / attempt.body["prefix"] / body["file"]
        whole = path.is_file() and sha256(path.read_bytes()) == body["checkpoint"]
        self._must("S6", whole, f"{body['file']} of {name} is not the file that was reported")
        parent = attempt.saved[-1]["checkpoint"] if attempt.saved else None
        parent = parent or attempt.body["parent_checkpoint"]
        self._must("S6", body["parent_checkpoint"] == parent, f"{name} has another parent")
        header = read_header(path)
        expected = {
            "lineage.attempt": name,
            "lineage.subject": attempt.body["subject"],
            "lineage.step": str(body["step"]),
            "lineage.parent_checkpoint": parent or "",
        }
        for key, wanted in expected.items():
            self._must("S6", header.get(key) == wanted, f"{name} with {key} {header.get(key)}")
        attempt.saved.append(body)

    def _attempt_ended(self, body: Mapping[str, Any]) -> None:
        self._must("S3", body["attempt"] in self.attempts, f"{body['attempt']} was never started")
        once = self.attempts[body["attempt"]].end is None
        self._must("S3", once, f"{body['attempt']} is settled twice")
        attempt = self.attempts[body["attempt"]]
        name, charge = body["attempt"], body["charged_seconds"]
        reserved = attempt.body["reserved_seconds"]
        # a dispatch counts from its decision, which is recorded a little later
        most = min(reserved, self._at - attempt.since) + TINY
        # a charge is told after whatever was said before it
        least = min(reserved, self._before - attempt.at)
        if body["state"] == "expired":
            least = min(least, LEASE_SECONDS)
        least -= TINY
        self._must("S3", charge <= most, f"{name} is charged {charge} s of {most} s")
        self._must("S3", charge >= least, f"{name} is charged {charge} s, less than {least} s")
        attempt.end = body
        purpose = body["purpose"]
        self.charged[purpose] = self.charged.get(purpose, 0.0) + charge
        self._check_end(attempt, body)

    def _check_end(self, attempt: Attempt, body: Mapping[str, Any]) -> None:
        name, state = body["attempt"], body["state"]
        last = attempt.reports.get(max(attempt.reports, default=-1))
        cost = None if last is None else last["cost_per_1000"]
        if state == "completed":
            final = attempt.reports.get(self.plan["training"]["steps"])
            self._must("S9", final is not None, f"{name} completed without its last report")
            finite = final is not None and final["cost_per_1000"] is not None
            self._must("S9", finite, f"{name} completed without a finite cost")
            self._must("S9", bool(self._content(body["model"])), f"{name} left no weights")
        if state == "pruned":
            stopped = last is not None and last["verdict"] == "stop"
            self._must("S7", stopped, f"{name} is pruned without a verdict")
            self._must("S9", cost is not None, f"{name} is pruned, its value does not rank")
        if body["own_failure"]:
            self._must("S8", state == "failed", f"{name} {state} counts as its own failure")
        if state == "expired":
            lost = not body["own_failure"]
            self._must("S8", lost, f"{name} was lost and uses up its trial")

    def _attempt_quarantined(self, body: Mapping[str, Any]) -> None:
        attempt = self.attempts[body["attempt"]]
        self._must("S6", attempt.end is not None, f"{body['attempt']} is quarantined and open")
        self._must("S6", attempt.clean, f"{body['attempt']} is quarantined twice")
        attempt.clean = False
        evidence = self._witness.contaminated.get(body["attempt"])
        other = None if evidence is None else self.attempts.get(evidence.other)
        if evidence is not None and other is not None:
            saved = {one["checkpoint"] for one in other.saved}
            if not evidence.digest or evidence.digest in saved:
                attempt.owes = evidence.other
        slot = self._by_trial[attempt.body["subject"]]
        attempt.late = slot.batch in self.closed

    def _contamination_replayed(self, body: Mapping[str, Any]) -> None:
        for name in body["attempts"]:
            attempt = self.attempts[name]
            self._must("S6", attempt.late, f"{name} was not found late, and is replayed")
            attempt.replayed, attempt.cleared = True, not body["changed"]

    # ---- the end --------------------------------------------------------------------------------

    def _search_ended(self, body: Mapping[str, Any]) -> None:
        self._must("end", self.ended is None, "the search ends twice")
        open_ones = [name for name, one in self.attempts.items() if one.end is None]
        self._must("end", not open_ones, f"the search ends, {open_ones} are open")
        forgotten = [name for name, one in self.attempts.items() if one.late and not one.replayed]
        self._must("S6", not forgotten, f"{forgotten} were found late and never replayed")
        states = [self._state(one) for one in self.slots.values()]
        reason, budget = body["reason"], self.plan["search"]["budget_trials"]
        waiting = states.count("waiting")
        right = {
            "budget": len(states) == budget and not waiting and "completed" in states,
            "failed": not waiting and "completed" not in states,
            "pruned": not waiting and "completed" not in states and "failed" not in states,
            "space": len(states) < budget and not waiting,
            "cap": bool(waiting) and self._full(),
        }
        self._must("end", right.get(reason, False), f"ended {reason} with {states}")
        self.ended = reason

    def _full(self) -> bool:
        room = self.search_seconds - self.charged.get("search", 0.0)
        return bool(room < self.plan["search"]["trial_seconds_maximum"] + TINY)

    def table(self) -> list[list[Any]]:
        """Return what the search found about every slot, in its own words."""
        steps = self.plan["training"]["steps"]
        rows: list[list[Any]] = []
        for number in range(1, self.plan["search"]["budget_trials"] + 1):
            slot = self.slots.get(number)
            if slot is None:
                rows.append([number, "waiting", {}, {}, None])
                continue
            state, reports = self._state(slot), slot.reports()
            costs = {str(step): one["cost_per_1000"] for step, one in sorted(reports.items())}
            scores = reports[steps]["scores"] if state == "completed" else None
            rows.append([number, state, slot.fields["configuration"], costs, scores])
        return rows

    def check_evidence(self, body: Mapping[str, Any]) -> None:
        """Check what the evidence of the search says against what the events add up to."""
        rows, budget = self.table(), self.plan["search"]["budget_trials"]
        started = sum(bool(one.attempts) for one in self.slots.values())
        counts: dict[str, int] = {}
        for row in rows:
            counts[row[1]] = counts.get(row[1], 0) + 1
        self._must("end", body["ended"] == self.ended, f"evidence of an end {body['ended']}")
        self._must("S2", body["started_trials"] == started, f"{started} slots were started")
        self._must("S2", body["unstarted_trials"] == budget - started, "slots are missing")
        self._must("S2", body["trials_by_state"] == counts, f"slots are {counts}")
        charged = sum(body["charged_seconds_by_purpose"].values())
        own = sum(self.charged.values())
        self._must("S3", abs(charged - own) < 1e-3, f"evidence of {charged} s, charged {own} s")
        final = str(self.plan["training"]["steps"])
        ranked = [(row[3][final], row[0]) for row in rows if row[1] == "completed"]
        best = f"parcel-{min(ranked)[1]:02d}" if ranked else None
        self._must("S9", body["best_trial"] == best, f"best is {best}, not {body['best_trial']}")

    @property
    def late(self) -> bool:
        """Whether contamination was found after a batch had closed."""
        return any(one.late for one in self.attempts.values())

    @property
    def in_doubt(self) -> bool:
        """Whether a replay shows that contamination changed a decision: the revision holds."""
        return any(one.late and not one.cleared for one in self.attempts.values())

    @property
    def limit_reached(self) -> bool:
        """Whether an attempt used its whole reservation."""
        return any(
            one.end is not None
            and one.end["charged_seconds"] >= one.body["reserved_seconds"] - TINY
            for one in self.attempts.values()
        )
