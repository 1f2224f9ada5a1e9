"""For each gate one fault that makes it fail, and the words that its refusal must say.

A fault changes what a chain says; where the gate measures instead of reading, it spoils the thing
measured: the packet's folder here, the vault's receipts where a test keeps them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parcel_assets.core.gates import GATES
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Store
from parcel_assets.core.stage import Stage

Body = dict[str, Any]
Events = list[tuple[Kind, dict[str, Any]]]

STAGE_OF = {gate.name: gate.stage for gate in GATES}


@dataclass(frozen=True)
class Fault:
    """How to make one gate fail, and a few words that its refusal must say."""

    words: str
    body: Callable[[Body, Store], None] | None = None
    events: Callable[[Events], Events] | None = None
    packet: Callable[[Path], None] | None = None


def next_asset(name: str) -> str:
    """Return the first asset that a gate stops."""
    gate = next(one for one in GATES if one.name == name)
    return str(next(stage for stage in Stage if gate.stops(stage)))


# ---- changes of evidence ------------------------------------------------------------------------


def put(name: str, value: Any) -> Callable[[Body, Store], None]:
    def change(body: Body, _store: Store) -> None:
        body[name] = value

    return change


def add_bad_row(column: str) -> Callable[[Body, Store], None]:
    def change(body: Body, _store: Store) -> None:
        row = {"file": "a.jpg", "row": 2, "column": column, "found": "?", "expected": "!"}
        body["bad_rows"] = [*body["bad_rows"], {**row, "remedy": "mend"}]

    return change


def tear_a_component(body: Body, store: Store) -> None:
    assignment = copy.deepcopy(store.get_document(body["assignment_document"]))
    parts = assignment["parts"]
    parts["validation"] = [*parts["validation"], parts["train"][0]]
    body["assignment_document"] = store.put_document(assignment)


def miss_the_minimum(body: Body, _store: Store) -> None:
    row = {"part": "train", "met": False, "sentence": "train holds 3 shipments of 20."}
    body["support"] = [row]


def fail_an_expectation(body: Body, _store: Store) -> None:
    first = {**body["expectations"][0], "passed": False, "sentence": "parcel-07 appears twice."}
    body["expectations"] = [first, *body["expectations"][1:]]


def lose_a_slot(body: Body, _store: Store) -> None:
    body["trials_by_state"] = body["trials_by_state"] | {"completed": 1}


def judge(**fields: Any) -> Callable[[Body, Store], None]:
    def change(body: Body, _store: Store) -> None:
        body["judgement"] = body["judgement"] | fields

    return change


# ---- changes of events --------------------------------------------------------------------------


def without(kind: Kind) -> Callable[[Events], Events]:
    return lambda entries: [one for one in entries if one[0] != kind]


def overcharge(entries: Events) -> Events:
    return change_first(entries, Kind.ATTEMPT_ENDED, charged_seconds=1e6)


def leave_one_open(entries: Events) -> Events:
    """Forget how the first completed trial's attempt ended."""
    ended = next(
        number
        for number, (kind, said) in enumerate(entries)
        if kind == Kind.ATTEMPT_ENDED and said["purpose"] == "search"
    )
    return entries[:ended] + entries[ended + 1 :]


def contaminate(entries: Events) -> Events:
    """Quarantine an attempt late, and let its replay find a decision that it made.

    Without the replay the next run of the search would train the trial again, as it should.
    """
    attempt = next(
        said
        for kind, said in entries
        if kind == Kind.ATTEMPT_ENDED and said["state"] == "completed"
    )
    late = {
        "attempt": attempt["attempt"],
        "trial": attempt["subject"],
        "reason": "a checkpoint of another trial lies below its prefix",
    }
    replay = {
        "attempts": [attempt["attempt"]],
        "batches": [3],
        "changed": ["batch 3 would hold other configurations"],
    }
    return [
        *entries,
        (Kind.ATTEMPT_QUARANTINED, late),
        (Kind.CONTAMINATION_REPLAYED, replay),
    ]


def change_first(entries: Events, kind: Kind, **fields: Any) -> Events:
    changed = list(entries)
    number = next(n for n, one in enumerate(changed) if one[0] == kind)
    changed[number] = (kind, changed[number][1] | fields)
    return changed


# ---- damage to packets --------------------------------------------------------------------------


def damage_model(packet: Path) -> None:
    path = packet / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def unsign(packet: Path) -> None:
    path = packet / "SHA256SUMS.sig"
    path.chmod(0o644)
    path.write_bytes(b"no signature")


FAULTS: dict[str, Fault] = {
    "digest_equals_pin": Fault("the plan pins", body=put("snapshot_digest", "0" * 64)),
    "images_decode": Fault("1 left out", body=add_bad_row("photo")),
    "labels_known": Fault("0 damaged", body=put("damaged_photos", 0)),
    "no_contradictory_duplicates": Fault("opposite labels", body=add_bad_row("duplicate")),
    "no_component_in_two_parts": Fault("lie in two parts", body=tear_a_component),
    "no_duplicate_across_parts": Fault(
        "identical twin", body=put("duplicate_pixels_across_parts", 3)
    ),
    "minimum_support": Fault("3 shipments of 20", body=miss_the_minimum),
    "holdout_unspent": Fault("opened by an-earlier-search"),  # a receipt says so
    "budget_exact": Fault("ended: not yet", events=without(Kind.SEARCH_ENDED)),
    "cap_kept": Fault("accelerator-hours charged", events=overcharge),
    "lineage_verified": Fault("batch 3 would hold", events=contaminate),
    "no_lease_open": Fault("still open", events=leave_one_open),
    "expectations": Fault("parcel-07 appears twice", body=fail_an_expectation),
    "slots_accounted": Fault(" slots: ", body=lose_a_slot),
    "ledger_folds_to_table": Fault("the frozen table is", body=put("table_digest", "0" * 64)),
    "reproduced": Fault("largest score difference", body=put("largest_score_difference", 0.5)),
    "stable_over_seeds": Fault("gate stable_over_seeds", body=judge(unstable=True)),
    "within_tolerance": Fault("gate within_tolerance", body=judge(not_reproduced=True)),
    "protected_slices": Fault("crushed_corner"),  # a chain whose slice is held, undecided
    "holdout_once": Fault("2 receipt"),  # a second receipt beside sealed labels
    "evaluated_model_identity": Fault("frozen model", body=put("model", "0" * 64)),
    "target": Fault("target"),  # a chain whose result misses the target
    "packet_digests": Fault("model.safetensors", packet=damage_model),
    "packet_signature": Fault("gate packet_signature", packet=unsign),
}
