"""The rules behind the gate table: pure functions from the chain to a verdict in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parcel_assets.core.chain import READY, Chain
from parcel_assets.core.disposition import HOLD_SLICE_QUALITY
from parcel_assets.core.final_record import final_contradictions
from parcel_assets.core.holdout import spent_words
from parcel_assets.core.ledger import Kind
from parcel_assets.core.refusals import admitted_of, refusals_of
from parcel_assets.core.search import fold_search
from parcel_assets.core.table import table_digest, table_rows

HOLD_CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """A gate's outcome in words, with the facts a page shows; `hold` names a hold."""

    passed: bool
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    hold: str | None = None


def closed_words(words: str) -> str:
    """Return the sentence that a closed search shows wherever it is met."""
    return f"The search was closed for good by a person: {words}"


def pin(chain: Chain) -> GateVerdict:
    """Say whether the archive as read has the digest that the plan pins."""
    found, pinned = chain.snapshot.snapshot_digest, chain.plan.snapshot.digest
    return GateVerdict(
        found == pinned,
        f"The archive has digest {found[:8]}; the plan pins {pinned[:8] or 'nothing yet'}.",
        {"found": found, "expected": pinned},
    )


def images_decode(chain: Chain) -> GateVerdict:
    """Say whether every photo decoded, or the plan leaves out those that did not."""
    body = chain.snapshot
    bad = [row for row in body.bad_rows if row.column in {"photo", "pixels"}]
    allowed = chain.plan.snapshot.bad_rows == "leave_out"
    return GateVerdict(
        body.photos > 0 and (not bad or allowed),
        f"{body.photos} photos decoded; {len(bad)} left out.",
        {"photos": body.photos, "left_out": len(bad)},
    )


def labels_known(chain: Chain) -> GateVerdict:
    """Say whether both damaged and intact photos are there."""
    body = chain.snapshot
    intact = body.photos - body.damaged_photos
    return GateVerdict(
        body.damaged_photos > 0 and intact > 0,
        f"{body.damaged_photos} damaged and {intact} intact photos.",
        {"damaged_photos": body.damaged_photos, "intact_photos": intact},
    )


def no_contradictions(chain: Chain) -> GateVerdict:
    """Say whether no identical content carries opposite labels."""
    rows = [row for row in chain.snapshot.bad_rows if row.column == "duplicate"]
    allowed = chain.plan.snapshot.bad_rows == "leave_out"
    return GateVerdict(
        not rows or allowed,
        f"{len(rows)} photos whose identical content carries opposite labels.",
        {"contradictory": len(rows)},
    )


def components_whole(chain: Chain) -> GateVerdict:
    """Say whether no shipment and no component lies in two parts, or two tranches (D1)."""
    assignment, torn = chain.observed["assignment"], []
    for places in (assignment["parts"], assignment.get("tranches", {})):
        seen: dict[str, str] = {}
        placed = [(shipment, part) for part, shipments in places.items() for shipment in shipments]
        torn += [shipment for shipment, part in placed if seen.setdefault(shipment, part) != part]
        for component in assignment["components"]:
            if len({seen.get(shipment) for shipment in component}) > 1:
                torn.extend(component)
    return GateVerdict(
        not torn,
        f"{len(torn)} shipments lie in two parts or apart from their component.",
        {"torn": sorted(torn)[:20]},
    )


def no_duplicate_across(chain: Chain) -> GateVerdict:
    """Say whether no photo has an identical twin in another part."""
    count, alike = chain.split.duplicate_pixels_across_parts, chain.split.near_copies_across_parts
    words = f"{count} photos have an identical twin in another part."
    if alike:
        words += f" {alike} pairs look like copies across parts or tranches: a person shall look."
    first = [one.document() for one in chain.split.near_copies[:20]]
    return GateVerdict(count == 0, words, {"near_copies": alike, "first": first})


def minimum_support(chain: Chain) -> GateVerdict:
    """Say whether every part holds the plan's minimum."""
    short = [row for row in chain.split.support if not row["met"]]
    words = "; ".join(str(row["sentence"]) for row in short)
    return GateVerdict(
        not short,
        f"Every minimum of the plan is met ({len(chain.split.support)})." if not short else words,
        {"short": short},
    )


def holdout_unspent(chain: Chain) -> GateVerdict:
    """Say whether no other revision opened any key of this holdout, or the plan allows it (H6)."""
    openings = {
        key: revision
        for key, revision in chain.observed["holdout_opened_by"].items()
        if revision != chain.revision
    }
    spent = {
        shipment: revision
        for shipment, revision in chain.observed["spent_shipments"].items()
        if revision != chain.revision
    }
    spent_by = sorted(set(openings.values()))
    words = f"Of this holdout, {spent_words(spent)}."
    if chain.plan.final.allow_spent:
        words = f"The plan allows a spent holdout, and the packet says so. {words}"
    return GateVerdict(
        not openings or chain.plan.final.allow_spent,
        words if openings else "No shipment of the holdout was ever opened.",
        {
            "spent_by": spent_by,
            "spent_keys": len(openings),
            "spent_shipments": len(spent),
            "first_spent": list(spent)[:20],
        },
    )


def budget_exact(chain: Chain) -> GateVerdict:
    """Say whether started and unstarted slots add up to the budget (S2)."""
    state = fold_search(chain.plan, chain.events)
    budget = chain.plan.search.budget_trials
    if state.closed is not None:
        return GateVerdict(
            False, closed_words(state.closed), {"words": state.closed}, hold=HOLD_CLOSED
        )
    return GateVerdict(
        state.ended is not None and state.started + state.unstarted == budget,
        f"{state.started} started + {state.unstarted} unstarted of {budget}; "
        f"ended: {state.ended or 'not yet'}.",
        {"started": state.started, "unstarted": state.unstarted, "budget": budget},
        hold=None if state.ended else "hold:search-running",
    )


def cap_kept(chain: Chain) -> GateVerdict:
    """Say whether charges stay below the cap (S3)."""
    charged = sum(fold_search(chain.plan, chain.events).charged_seconds_by_purpose.values())
    cap = chain.plan.cap_seconds
    words = f"{charged / 3600:.3f} of {cap / 3600:.3f} accelerator-hours charged."
    return GateVerdict(charged <= cap, words, {"charged_seconds": charged, "cap_seconds": cap})


def lineage_verified(chain: Chain) -> GateVerdict:
    """Say whether no attempt's lineage is in doubt (S6)."""
    state = fold_search(chain.plan, chain.events)
    faults, aside = state.lineage_faults, state.attempts_by_state.get("quarantined", 0)
    sound = f"The lineage of every attempt that counts is verified; {aside} quarantined."
    return GateVerdict(
        not faults,
        "; ".join(faults[:5]) or sound,
        {
            "faults": list(faults)[:20],
            "workers_admitted": len(admitted_of(chain.events)),
            "workers_refused": [one.sentence for one in refusals_of(chain.events)][:20],
        },
        hold="hold:lineage" if faults else None,
    )


def nothing_open(chain: Chain) -> GateVerdict:
    """Say whether no trial attempt is still open."""
    state = fold_search(chain.plan, chain.events)
    searching = [one for one in state.open_attempts if one.purpose == "search"]
    return GateVerdict(not searching, f"{len(searching)} trial attempts still open.")


def expectations(chain: Chain) -> GateVerdict:
    """Say whether every expectation on the frozen table is met."""
    results = chain.table.expectations
    failed = [row for row in results if not row["passed"]]
    return GateVerdict(
        bool(results) and not failed,
        f"{len(results) - len(failed)} of {len(results)} expectations met."
        if not failed
        else "; ".join(f"{row['name']}: {row['sentence']}" for row in failed),
        {"failed": [row["name"] for row in failed]},
    )


def slots_accounted(chain: Chain) -> GateVerdict:
    """Say whether every slot of the budget has a row."""
    counts, budget = chain.table.trials_by_state, chain.plan.search.budget_trials
    total = sum(counts.values())
    listed = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return GateVerdict(total == budget, f"{total} of {budget} slots: {listed}.", {"counts": counts})


def ledger_folds(chain: Chain) -> GateVerdict:
    """Say whether the ledger folds to the table that was frozen."""
    digest = table_digest(table_rows(chain.plan, fold_search(chain.plan, chain.events)))
    recorded = chain.table.table_digest
    return GateVerdict(
        digest == recorded,
        f"The ledger folds to table {digest[:8]}; the frozen table is {recorded[:8]}.",
        {"found": digest, "expected": recorded},
    )


def reproduced(chain: Chain) -> GateVerdict:
    """Say whether the own-seed rerun gives the search's scores (H3)."""
    body = chain.rerun
    limit = chain.plan.rerun.maximum_score_difference
    return GateVerdict(
        body.largest_score_difference <= limit,
        f"Own-seed rerun: largest score difference {body.largest_score_difference:.3g}, "
        f"allowed {limit:.3g}.",
        {"largest_score_difference": body.largest_score_difference, "allowed": limit},
        hold=None if body.largest_score_difference <= limit else "hold:rerun",
    )


def stable(chain: Chain) -> GateVerdict:
    """Say whether the spread over the declared seeds is small enough."""
    judgement = chain.rerun.judgement
    good = judgement.get("unstable") is False
    return GateVerdict(
        good, str(judgement["sentence"]), dict(judgement), hold=None if good else "hold:rerun"
    )


def within_tolerance(chain: Chain) -> GateVerdict:
    """Say whether the search score is no luckier than a winner of such a search may be.

    The interval of the declared reruns is shown but does not hold: a winner was chosen for being
    low, so an honest one lies outside it in a tenth to a third of searches (simulated).
    """
    judgement = chain.rerun.judgement
    good = judgement.get("not_reproduced") is False
    return GateVerdict(
        good, str(judgement["sentence"]), dict(judgement), hold=None if good else "hold:rerun"
    )


def protected_slices(chain: Chain) -> GateVerdict:
    """Say whether the disposition lets the selected trial on, perhaps by a decision."""
    body, decision, disposition = chain.slices, chain.decision, chain.disposition()
    held = [str(r["sentence"]) for r in body.slices if r["role"] == "protected" and not r["passed"]]
    unsound, expired = chain.unsound_decision, chain.expired_acceptance
    words = [*held] if held else ["Every protected slice passes."]
    if held and decision is not None and chain.accepted:
        words.append(
            f"Accepted by {decision.name} ({decision.role}) for {decision.scope}, "
            f"until {decision.expires_on}."
        )
    words += [fault for fault in (unsound, expired if held else None) if fault is not None]
    ready = disposition == READY and unsound is None
    return GateVerdict(
        ready,
        " ".join(words),
        {"disposition": disposition, "decision": decision.outcome if decision else "none"},
        hold=None if ready else HOLD_SLICE_QUALITY if disposition == READY else disposition,
    )


def holdout_once(chain: Chain) -> GateVerdict:
    """Say whether one opening in the ledger, one receipt beside the sealed labels (H5)."""
    openings = [event for event in chain.events if event.kind == Kind.HOLDOUT_OPENED]
    # a later search whose plan allows a spent holdout says so in its receipt, as does this one
    allowed = set(openings[0].body.get("reused", {}).get("by", ())) if openings else set()
    receipts = [
        one
        for one in chain.observed["receipts"]
        if one["revision"] not in allowed and chain.revision not in one.get("reuses", ())
    ]
    good = len(openings) == 1 and len(receipts) == 1
    good = good and receipts[0].get("opened_event") in {None, openings[0].digest}
    good = good and receipts[0]["revision"] == chain.revision
    return GateVerdict(
        good,
        f"{len(openings)} opening in the ledger, {len(receipts)} receipt beside the sealed labels.",
        {"openings": len(openings), "receipts": len(receipts)},
    )


def model_identity(chain: Chain) -> GateVerdict:
    """Say whether the frozen model was evaluated, and the evidence is what that look left."""
    frozen, judged = chain.rerun, chain.final
    same = (frozen.model, frozen.threshold) == (judged.model, judged.threshold)
    words = f"Evaluated model {judged.model[:8]} at {judged.threshold:g}; "
    words += f"frozen model {frozen.model[:8]} at {frozen.threshold:g}."
    if other := final_contradictions(judged, chain.events):
        words += f" Opening and result on record give another {', '.join(other)}."
    return GateVerdict(same and not other, words)


def target(chain: Chain) -> GateVerdict:
    """Say whether the final result meets the plan's target."""
    body = chain.final
    holds = {"FAIL": "rejected:performance", "INSUFFICIENT": "hold:final-evidence"}
    return GateVerdict(
        body.outcome == "PASS", body.sentence, dict(body.result), hold=holds.get(body.outcome)
    )


def packet_digests(chain: Chain) -> GateVerdict:
    """Say whether every file of the packet has its digest (R2)."""
    faults = chain.observed["packet"]["faults"]
    return GateVerdict(
        not faults,
        "Every file of the packet has its digest." if not faults else "; ".join(faults[:5]),
        {"faults": faults[:20]},
    )


def packet_signature(chain: Chain) -> GateVerdict:
    """Say whether the manifest is signed by the release key."""
    packet = chain.observed["packet"]
    return GateVerdict(bool(packet["signature_ok"]), str(packet["signature_sentence"]))
