"""Writes a first, commented plan for an archive of one's own.

The text is for a person to read and change. It holds no pin: `parcel-assets snapshot pin` writes
it. Every guess from the label table is marked as one.
"""

import json
from collections.abc import Sequence

from parcel_assets.core.sketch import ArchiveSketch

STEPS = 82
MISSED_DAMAGE, NEEDLESS_REVIEW = 5.0, 1.0
TARGET_SHARE = 0.75  # of the better trivial policy
SMALL_ARCHIVE_PHOTOS = 2000  # below it, slices are only watched: none could prove itself


def plan_text(
    sketch: ArchiveSketch, *, archive: str, location: str, budget_trials: int = 82
) -> str:
    """Return the TOML text of a plan that searches the sketched archive."""
    parts = [
        _head(sketch),
        _snapshot(sketch, archive, location),
        _split(archive),
        _search(sketch, budget_trials),
        _space(sketch),
        _slices(sketch),
        _final(sketch),
    ]
    return "\n".join(parts)


def _head(sketch: ArchiveSketch) -> str:
    warnings = "".join(f"# LOOK HERE: {one}.\n" for one in sketch.warnings)
    return f"""\
# A search plan. The file's name is the search revision. Once its first stage has run, the plan is
# frozen: other content under the same name is refused, so save changes under a new name.
# {len(sketch.table.rows)} rows and {sketch.shipments} shipments were found in {sketch.table.table}.
{warnings}
purpose = "Find photos that need manual damage review."
# a sensor launches plans marked ready; this key changes no answer
ready = false
"""


def _snapshot(sketch: ArchiveSketch, archive: str, location: str) -> str:
    pattern = (
        f"shipment_pattern = {_literal(sketch.shipment_pattern)}"
        if sketch.shipment_pattern
        else '# shipment_pattern = "PKG-[0-9]{6}"'
    )
    columns = [
        f"photo = {_text(sketch.photo)}",
        f"shipment = {_text(sketch.shipment)}",
        f"label = {_text(sketch.label)}",
    ]
    if sketch.damage_type:
        columns.append(f"damage_type = {_text(sketch.damage_type)}")
    if sketch.camera_class:
        columns.append(f"camera_class = {_text(sketch.camera_class)}")
    columns.append(f"further = {_list(sketch.further)}  # more columns that slices may use")
    unknown = (
        f"# not mapped, so refused as bad rows: {', '.join(sketch.unknown_labels)}\n"
        if sketch.unknown_labels
        else ""
    )
    newline = "\n"
    return f"""\
# ---- The pinned archive. Its digest covers every image byte, every column used below and the label
# map; a changed archive is refused.
[snapshot]
archive = {_text(archive)}  # its name in the registers of assignments and opened holdouts
location = {_text(location)}  # the packet's plan tells it: below the data folder it is shortest
digest = ""  # `parcel-assets snapshot pin PLAN` writes it
table = {_text(sketch.table.table)}
encoding = {_text(sketch.table.encoding)}
delimiter = {_text(sketch.table.delimiter)}
# every shipment id must match this whole; it catches ids whose leading zeros were lost
{pattern}
bad_rows = "refuse"  # or "leave_out": bad rows are then listed and counted, never skipped silently

# Which column holds what (guessed from the header). Everything is read as text: leading zeros stay.
[snapshot.columns]
{newline.join(columns)}

# Which words mean damaged, and which intact (guessed from the values).
[snapshot.labels]
{unknown}damaged = {_list(sketch.damaged or ("damaged",))}
intact = {_list(sketch.intact or ("intact",))}
"""


def _split(archive: str) -> str:
    return f"""\
# ---- Shipments, never single photos, are dealt to the parts by a keyed hash; a shipment once dealt
# stays in its part for ever. [[split.minimum]] blocks the search where a part holds too little.
[split]
key = {_text(archive + " split")}
train = 0.5
validation = 0.3
holdout = 0.2
# A holdout opens once. To keep some of it for later searches, deal it to tranches: each search
# opens one of its own, whole. Each must by itself be large enough for [final]; they are shown by
# `parcel-assets holdout status`. A later plan has a name of its own and says [parent] revision and
# reason.
# holdout_tranches = 3

[[split.minimum]]
part = "validation"
shipments = 20
damaged_photos = 10

[[split.minimum]]
part = "holdout"
shipments = 20
damaged_photos = 10

[preprocess]
image_size_pixels = 64
"""


def _search(sketch: ArchiveSketch, budget_trials: int) -> str:
    small = len(sketch.table.rows) < SMALL_ARCHIVE_PHOTOS
    return f"""\
# ---- What a mistake costs. The threshold is refitted on validation under one rule for all trials.
[metric]
missed_damage = {MISSED_DAMAGE}
needless_review = {NEEDLESS_REVIEW}
unit = "cost units"
# the share of validation shipments scored at milestones before the last
milestone_fraction = {1.0 if small else 0.5}

# ---- The bounded search. `parcel-assets plan show PLAN` prints the most it can cost. An
# accelerator-hour is one worker slot for one hour; a worker on a CPU is one slot, too.
[search]
sampler = "tpe"  # or "random"
seed = {STEPS}
budget_trials = {budget_trials}
cap_accelerator_hours = 8.0
batch_trials = 8
lookahead_batches = 2
attempts_per_trial = 2
trial_seconds_maximum = 120.0

[training]
steps = {STEPS}
batch_photos = 64
milestones = [9, 27, {STEPS}]  # trials are compared at these steps and nowhere else
network = "cnn"  # or "package.module:Class", your own LightningModule

[pruning]
keep_fractions = [1.0, 0.6]  # nothing is cut at step 9: it says too little about the end
"""


def _space(sketch: ArchiveSketch) -> str:
    rare = _rarest(sketch)
    oversample = ""
    if rare is not None:
        oversample = f"""
# how often the rare slice below is drawn again in training batches
[space.rare_oversampling]
kind = "choice"
values = [1.0, 2.0, 4.0]

[training.rare_slice]
dimension = "damage_type"
value = {_text(rare)}
"""
    return f"""\
# ---- What may vary.
[space.learning_rate]
kind = "float"
low = 3e-4
high = 3e-2
log = true

[space.width]
kind = "int"
low = 8
high = 24
step = 4

[space.depth]
kind = "int"
low = 2
high = 4

[space.weight_decay]
kind = "float"
low = 1e-5
high = 1e-1
log = true

[space.positive_weight]
kind = "float"
low = 1.0
high = 4.0

[space.augmentation]
kind = "choice"
values = ["none", "light", "strong"]
{oversample}
# ---- The configuration in use today: trained under the same pin, for comparison.
[reference]
name = "in use today"
configuration = {{ learning_rate = 0.003, width = 12, depth = 3 }}
"""


def _slices(sketch: ArchiveSketch) -> str:
    lines = [
        "# ---- Slices. A protected one must PASS before a release, or a person decides; a",
        "# monitored one is reported. Too little evidence is INSUFFICIENT, never a pass.",
    ]
    for dimension, values in sketch.values.items():
        found = ", ".join(f"{value}: {rows} rows" for value, rows in values.items())
        lines += [
            f"[slices.{dimension}]",
            f'dimension = "{dimension}"  # {found}',
            'role = "monitored"',
            "",
        ]
    rare = _rarest(sketch)
    if rare is not None and len(sketch.table.rows) >= SMALL_ARCHIVE_PHOTOS:
        lines += [
            "# to protect one, name its value:",
            f"# [slices.{_name(rare)}]",
            '# dimension = "damage_type"',
            f"# value = {_text(rare)}",
            '# role = "protected"',
            '# crossed_with = { camera_class = "top" }  # only those that also have this value',
            "",
        ]
    return "\n".join(lines)


def _final(sketch: ArchiveSketch) -> str:
    rows = sketch.table.rows
    share = sum(row[sketch.label] in sketch.damaged for row in rows) / max(1, len(rows))
    review_all = 1000 * NEEDLESS_REVIEW * (1 - share)
    review_none = 1000 * MISSED_DAMAGE * share
    target = max(1.0, round(TARGET_SHARE * min(review_all, review_none)))
    return f"""\
# ---- The final evaluation, declared now: the holdout opens once and is judged against this.
# By this table reviewing everything costs about {review_all:.0f} per 1,000 photos and reviewing
# nothing {review_none:.0f}; a target above the lower of the two asks nothing of a model.
[final]
target_cost_per_1000 = {target}
minimum_shipments = 20
minimum_damaged_photos = 10

[rerun]
seeds = [101, 102, 103, 104, 105]  # beside the winner's own seed
"""


def _rarest(sketch: ArchiveSketch) -> str | None:
    """Return the rarest damage type where there are several, else None."""
    types = sketch.values.get("damage_type", {})
    return min(types, key=lambda value: (types[value], value)) if len(types) > 1 else None


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(value: str) -> str:
    return f"'{value}'" if "'" not in value else _text(value)


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(one) for one in values)}]"


def _name(value: str) -> str:
    kept = "".join(one if one.isascii() and one.isalnum() else "_" for one in value.lower())
    return kept.strip("_") or "slice"
