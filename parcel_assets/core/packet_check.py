"""What makes a packet wrong although every file has its listed digest and the list is signed.

A signature proves who wrote a packet, not that it is consistent: the chain of events, the evidence
named in it, the one opening of the holdout, model, trials and verdict are checked here against each
other. Folders, digest lists and signatures are left to the adapter that reads them.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from parcel_assets.core.codec import canonical_json, digest_bytes, digest_value, short
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.core.evidence import FinalBody
from parcel_assets.core.final_record import final_contradictions, recorded_final
from parcel_assets.core.ledger import (
    CLOSED_BY_OPENING,
    Event,
    Kind,
    evidence_digests,
    last_of,
    verify_chain,
)
from parcel_assets.core.packet import (
    ATTEMPTS_FILE,
    CLOSED,
    CROISSANT_FILE,
    DECISION_FILE,
    FORMAT,
    KEY_FILE,
    LEDGER_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    OPENING_FILE,
    PLAN_FILE,
    PURPOSES,
    RECEIPTS_FILE,
    REPORT_FILE,
    SCORES_FILE,
    SERVING_FILE,
    TRIALS_FILE,
    VERDICT_FILE,
    Fault,
    Files,
    body_of,
    evidence_file,
    holds,
    read_json,
    read_rows,
)
from parcel_assets.core.packet_closed import closed_verdict
from parcel_assets.core.packet_decision import (
    REQUIRED_CLOSED,
    acceptance_faults,
    closing_faults,
)
from parcel_assets.core.packet_files import derived_files, pictures_of, read_events
from parcel_assets.core.packet_page import verdict_document
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.search import fold_search
from parcel_assets.core.stage import Stage
from parcel_assets.core.table import pack_scores, table_digest, table_rows
from parcel_assets.core.timestamps import token_digests
from parcel_assets.core.trial import TrialRow

REQUIRED = (
    VERDICT_FILE,
    PLAN_FILE,
    LEDGER_FILE,
    TRIALS_FILE,
    MODEL_FILE,
    SERVING_FILE,
    MANIFEST_FILE,
    CROISSANT_FILE,
    RECEIPTS_FILE,
    SCORES_FILE,
    REPORT_FILE,
    KEY_FILE,
    "README.md",
    "model_card.md",
    "environment.json",
    *(evidence_file(stage) for stage in Stage.PACKET.earlier),
)
# what reading a document of another shape raises
_UNREADABLE = (
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
)
Check = Callable[[Files, Sequence[Event]], Iterator[Fault]]


def check_packet(files: Files) -> list[Fault]:
    """Return everything that contradicts itself in a packet's files; empty for a sound packet."""
    try:
        closed = is_closed(files)
        required = REQUIRED_CLOSED if closed else REQUIRED
        absent = [Fault(path, "is absent") for path in required if path not in files]
        if absent:
            return absent
        version = read_json(files, VERDICT_FILE).get("format")
        events = read_events(files)
        verify_chain(events)
    except ParcelAssetsError as error:
        return [Fault(LEDGER_FILE, f"the chain of events is broken: {error.found}")]
    except _UNREADABLE as error:
        return [Fault(VERDICT_FILE, f"cannot be read ({error})")]
    if version != FORMAT:
        return [Fault(VERDICT_FILE, f"has format {version!r}; this verifier reads {FORMAT!r}")]
    if not events:
        return [Fault(LEDGER_FILE, "holds no event")]
    checks = CLOSED_CHECKS if closed else CHECKS
    return [fault for check in checks for fault in _carefully(check, files, events)]


def is_closed(files: Files) -> bool:
    """Say whether the files call themselves the record of a closed search."""
    if VERDICT_FILE not in files:
        return False
    verdict = read_json(files, VERDICT_FILE)
    return isinstance(verdict, dict) and verdict.get("verdict") == CLOSED


def _carefully(check: Check, files: Files, events: Sequence[Event]) -> list[Fault]:
    """Return a check's faults; a document without the shape it should have is one."""
    try:
        return list(check(files, events))
    except ParcelAssetsError as error:
        return [Fault(VERDICT_FILE, f"cannot be checked: {error}")]
    except _UNREADABLE as error:
        name = check.__name__.strip("_").replace("_", " ")
        return [Fault(VERDICT_FILE, f"{name} cannot be checked ({error!r})")]


def _plan(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    frozen = last_of(events, Kind.PLAN_FROZEN)
    digest = digest_value(read_json(files, PLAN_FILE))
    if frozen is None or frozen.body["plan_digest"] != digest:
        named = "none" if frozen is None else short(str(frozen.body["plan_digest"]))
        yield Fault(PLAN_FILE, f"has digest {short(digest)}; the ledger froze plan {named}")


def _evidence(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    recorded = evidence_digests(events)
    plan_digest = digest_value(read_json(files, PLAN_FILE))
    for stage in (one for one in Stage.PACKET.earlier if holds(files, one)):
        path = evidence_file(stage)
        digest, document = digest_bytes(files[path]), read_json(files, path)
        if recorded.get(str(stage)) != digest:
            yield Fault(path, "is not the evidence that the ledger recorded last")
        if document["plan_digest"] != plan_digest:
            yield Fault(path, "was made under another plan")
        for earlier in stage.earlier:
            if document["inputs"].get(str(earlier)) != recorded.get(str(earlier)):
                yield Fault(path, f"was made from other evidence of {earlier}")


def _derived(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    expected = derived_files(files)
    for path, data in expected.items():
        if path not in files:
            yield Fault(path, "is absent")
        elif files[path] != data:
            yield Fault(path, "is not what ledger, plan and evidence say")
    if DECISION_FILE in files and DECISION_FILE not in expected:
        yield Fault(DECISION_FILE, "is in no ledger event")


def _trials(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    plan = plan_from_fields(read_json(files, PLAN_FILE), where=PLAN_FILE)
    rows = read_rows(files, TRIALS_FILE)
    folded = table_digest(table_rows(plan, fold_search(plan, events)))
    frozen = (
        str(body_of(files, Stage.TABLE)["table_digest"]) if holds(files, Stage.TABLE) else folded
    )
    budget = plan.search.budget_trials
    if [row["number"] for row in rows] != list(range(1, budget + 1)):
        yield Fault(TRIALS_FILE, f"holds {len(rows)} rows; the plan's budget is {budget} slots")
        return
    if table_digest([TrialRow.model_validate_json(canonical_json(row)) for row in rows]) != frozen:
        yield Fault(TRIALS_FILE, f"is not the frozen table {short(frozen)}")
    if folded != frozen:
        yield Fault(LEDGER_FILE, "does not fold to the frozen trial table")
    strange = {row["purpose"] for row in read_rows(files, ATTEMPTS_FILE)} - set(PURPOSES)
    if strange:
        yield Fault(ATTEMPTS_FILE, f"charges for {', '.join(sorted(strange))}, which is no purpose")


def _opening(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    openings = [event for event in events if event.kind == Kind.HOLDOUT_OPENED]
    if len(openings) != 1:
        yield Fault(LEDGER_FILE, f"opens the holdout {len(openings)} times, expected exactly once")
        return
    opening, final = openings[0], body_of(files, Stage.FINAL)
    before = [event for event in events if event.sequence < opening.sequence]
    after = [event for event in events if event.sequence > opening.sequence]
    if last_of(before, Kind.SELECTION_FROZEN) is None:
        yield Fault(LEDGER_FILE, "opens the holdout before the selection was frozen")
    late = [event for event in after if event.kind in CLOSED_BY_OPENING]
    for event in late[:5]:
        yield Fault(
            LEDGER_FILE, f"has {event.kind} (event {event.sequence}) after the holdout was opened"
        )
    results = [event for event in after if event.kind == Kind.HOLDOUT_EVALUATED]
    if [event.body["predictions_digest"] for event in results] != [final["predictions_digest"]]:
        yield Fault(OPENING_FILE, "is not followed by exactly the one result of the evidence")
    if final["opened_event"] != opening.digest:
        yield Fault(evidence_file(Stage.FINAL), "names another opening than the ledger's")
    receipts = read_json(files, RECEIPTS_FILE)
    by = str(opening.revision)
    earlier = opening.body.get("reused", {}).get("by", ())
    asked = [
        receipt.get("request_digest")
        for receipt in receipts
        if receipt.get("revision") not in earlier and by not in receipt.get("reuses", ())
    ]
    if asked != [opening.body.get("request_digest")]:
        yield Fault(RECEIPTS_FILE, f"holds {len(receipts)} receipts, or one of another opening")


def _model(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    digest = digest_bytes(files[MODEL_FILE])
    final, rerun = body_of(files, Stage.FINAL), body_of(files, Stage.RERUN)
    for stage, body in ((Stage.FINAL, final), (Stage.RERUN, rerun)):
        if body["model"] != digest:
            yield Fault(
                MODEL_FILE, f"is {short(digest)}; {stage} was about {short(str(body['model']))}"
            )
    opening = last_of(events, Kind.HOLDOUT_OPENED)
    opened_for = None if opening is None else opening.body.get("model_digest")
    if opened_for != digest:
        yield Fault(MODEL_FILE, "is not the model for which the holdout was opened")
    if final["threshold"] != rerun["threshold"]:
        yield Fault(evidence_file(Stage.FINAL), "judged another threshold than was frozen")


def _data(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    if holds(files, Stage.SPLIT):
        (listed,) = read_json(files, CROISSANT_FILE)["distribution"]
        if listed["sha256"] != digest_bytes(files[MANIFEST_FILE]):
            yield Fault(MANIFEST_FILE, f"is not the file that {CROISSANT_FILE} describes")
    for path, digest in pictures_of(files).items():
        if path not in files or digest_bytes(files[path]) != digest:
            yield Fault(path, "is not the picture that the evidence names")


def _scores(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    if not holds(files, Stage.RERUN):
        return
    rows, rerun = (
        csv.DictReader(io.StringIO(files[SCORES_FILE].decode())),
        body_of(files, Stage.RERUN),
    )
    columns: dict[str, list[float]] = {"score": [], "reference_score": []}
    for row in rows:
        for name, values in columns.items():
            values.append(float(row[name]))
    for name, model in (("score", "own"), ("reference_score", "reference")):
        packed = pack_scores(np.array(columns[name], dtype=np.float32))
        if digest_bytes(packed) != rerun[model]["scores"]:
            yield Fault(SCORES_FILE, f"holds a `{name}` that the evidence does not name")


def _timestamps(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    named = token_digests(events)
    for path, digest in named.items():
        if path not in files:
            yield Fault(path, "is absent")
        elif digest_bytes(files[path]) != digest:
            yield Fault(path, "is not the token that the ledger names")
    for path in files:
        if path.endswith(".tsr") and path not in named:
            yield Fault(path, "is a token that no event which counts names")


def _final(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    path, body = evidence_file(Stage.FINAL), FinalBody.model_validate(body_of(files, Stage.FINAL))
    recorded = recorded_final(events)
    for field in final_contradictions(body, events):
        if field == "evidence_level":
            words = f"claims level {body.evidence_level}; key and timestamps allow"
            yield Fault(path, f"{words} {recorded[field]}")
        else:
            yield Fault(path, f"has another {field} than the ledger's opening and result")


def _verdict(files: Files, events: Sequence[Event]) -> Iterator[Fault]:
    found = read_json(files, VERDICT_FILE)
    expected = closed_verdict(files) if is_closed(files) else verdict_document(files)
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            yield Fault(VERDICT_FILE, f"`{key}` is not what the packet's evidence says")


CHECKS: tuple[Check, ...] = (
    _plan,
    _evidence,
    _opening,
    acceptance_faults,
    _model,
    _trials,
    _derived,
    _data,
    _scores,
    _timestamps,
    _final,
    _verdict,
)

CLOSED_CHECKS: tuple[Check, ...] = (
    _plan,
    _evidence,
    closing_faults,
    _trials,
    _derived,
    _data,
    _scores,
    _timestamps,
    _verdict,
)
