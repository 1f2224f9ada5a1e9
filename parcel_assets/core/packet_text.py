"""The words of a packet: the model card, the data description, plain tables.

Every number in here is read from the packet's other files; choosing files is left to `packet`.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parcel_assets.core.approval import who_words
from parcel_assets.core.ledger import Kind
from parcel_assets.core.packet import (
    LEDGER_FILE,
    Files,
    body_of,
    read_json,
    read_rows,
)
from parcel_assets.core.snapshot import SnapshotBody
from parcel_assets.core.stage import Stage
from parcel_assets.core.statistics import cost_words

# what Markdown would read as more than text; `_` inside a word is none
_MARKDOWN = re.compile(r"[\\`*\[\]<>#|!&~$]|(?<!\w)_|_(?!\w)")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run such a cell
CROISSANT = "http://mlcommons.org/croissant/1.0"


def csv_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as CSV: numbers as they read back, text that looks like a formula quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    words = str(value)
    looks_like_formula = isinstance(value, str) and words.startswith(FORMULA_STARTS)
    return f"'{words}" if looks_like_formula else words


def model_card(files: Files, verdict: Mapping[str, Any], purpose: str) -> bytes:
    """Return model_card.md in Markdown with a YAML head, every number with its source."""
    page = verdict["first_page"]
    lines = [
        "---",
        "library_name: parcel_assets",
        "pipeline_tag: image-classification",
        "tags: [parcel-damage, manual-review]",
        "---",
        "",
        f"# Parcel damage review, search revision {verdict['revision']}",
        "",
        f"**{verdict['sentence']}**",
        "",
        "## What it is for",
        "",
        markdown_text(purpose),
        "",
        (
            "The model gives one photo of a parcel a damage score between 0 and 1. A score at or "
            f"above the threshold `{verdict['threshold']}` sends the parcel to manual review."
        ),
        "",
        "## What it is not for",
        "",
        (
            "It does not decide about claims, and it knows nothing about photos unlike those of "
            "its snapshot: other cameras, other packaging, other damage. Look at the slices first."
        ),
        "",
        "## Numbers",
        "",
        "| what | value | source |",
        "| --- | --- | --- |",
        *_card_rows(files, page),
        "",
        _caution(page),
        "",
        "## Slices",
        "",
        *(
            f"- {one['role']['value']}, **{str(one['outcome']['value']).upper()}**: "
            f"{markdown_text(one['sentence']['value'])} (`{one['sentence']['source']}`)"
            for one in page["slices"]["slices"]
        ),
        "",
        "## Final evaluation",
        "",
        (
            f"{page['final']['sentence']['value']} Evidence level {verdict['evidence_level']}: "
            f"{verdict['evidence_level_means']}."
        ),
        *_reuse_lines(files),
        "",
        "## Input",
        "",
        _input_words(read_json(files, "model/preprocess.json")),
        "",
        *_decision_lines(files),
    ]
    return "\n".join(lines).encode()


def markdown_text(words: str) -> str:
    """Return text from outside so that Markdown shows it as it is: no markup, no HTML."""
    return _MARKDOWN.sub(r"\\\g<0>", words)


def _decision_lines(files: Files) -> list[str]:
    told = [one for one in read_rows(files, LEDGER_FILE) if one["kind"] == Kind.DECISION_RECORDED]
    if not told:
        return []
    return ["## Quality decisions", "", *(_decision_line(one["body"]) for one in told), ""]


def _decision_line(decision: Mapping[str, Any]) -> str:
    """Return one decision as a line of a list; the last line is the one that counts."""
    words = f"{decision['outcome']} by {who_words(decision)}: {decision['reason']}"
    if decision["outcome"] == "accept":
        words += f" Scope: {decision['scope']}. Until {decision['expires_on']} (UTC)."
    consequence = decision["numbers_seen"].get("consequence", "")
    return f"- {markdown_text(words)} {markdown_text(consequence)}".rstrip()


def reuse_words(final: Mapping[str, Any]) -> str:
    """Return what a final result must say where its holdout was looked at before, else nothing.

    `final` is the body of the evidence.
    """
    if not final["reused_shipments"]:
        return ""
    times = final.get("reused_times", 1)
    return (
        f"Diagnostic only: {final['reused_shipments']} shipments of this holdout were reused, "
        f"{times} {'time' if times == 1 else 'times'}, after earlier searches had opened them. The "
        "best of several searches on one holdout looks better than it is."
    )


def _reuse_lines(files: Files) -> list[str]:
    words = reuse_words(body_of(files, Stage.FINAL))
    return ["", words] if words else []


def _card_rows(files: Files, page: Mapping[str, Any]) -> list[str]:
    """Return the card's table: costs with a decimal only where the winner's misses carry one."""
    winner, missed = page["winner"], body_of(files, Stage.RERUN)["validation"]["missed"]
    corrected = dict(winner["corrected_cost"])
    corrected["source"] += "/mean"
    corrected["value"] = (corrected["value"] or {}).get("mean")
    rows = [
        ("trials planned", page["counts"]["budget_trials"]),
        ("winner", winner["trial_id"]),
        ("winner, validation cost per 1,000, chosen for being low", winner["search_cost_per_1000"]),
        ("winner, corrected for the choice, per 1,000", corrected),
        ("reference, validation cost per 1,000", winner["reference_cost_per_1000"]),
        ("reviewing everything, cost per 1,000", winner["review_all_cost_per_1000"]),
        ("reviewing nothing, cost per 1,000", winner["review_none_cost_per_1000"]),
        ("rerun tolerance, cost per 1,000", page["rerun"]["tolerance"]),
        ("final target, cost per 1,000", page["final"]["target_cost_per_1000"]),
        ("accelerator-seconds in all", page["compute"]["charged_seconds"]["total"]),
    ]
    costs = {name for name, _ in rows if "per 1,000" in name and "target" not in name}
    shown = []
    for name, one in rows:
        value = "not known" if one["value"] is None else one["value"]
        if isinstance(value, float):
            value = cost_words(value, missed) if name in costs else f"{value:.4g}"
        shown.append(f"| {name} | {value} | `{one['source']}` |")
    return shown


def _caution(page: Mapping[str, Any]) -> str:
    trials = page["counts"]["budget_trials"]["value"]
    return (
        f"The winner's own validation cost is no quality claim: it is the lowest that {trials} "
        "trials came to. The corrected one is what to expect; the final evaluation is what was "
        "measured."
    )


def _input_words(preprocess: Mapping[str, Any]) -> str:
    side, network_side = preprocess["image_size_pixels"], preprocess["network_side_pixels"]
    again = "" if side == network_side else f", then to {network_side} by {network_side}"
    return (
        f"8-bit RGB photos turned upright, scaled to {side} by {side} pixels{again}, divided by "
        "255, less "
        f"the mean {preprocess['mean']}, over the standard deviation "
        f"{preprocess['standard_deviation']}; channels first."
    )


def croissant(
    snapshot: SnapshotBody, revision: str, manifest_digest: str, parts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a description of the snapshot after MLCommons Croissant 1.0: counts and digests only.

    The photos themselves are not in the packet; of the holdout stand counts and its commitment.
    """
    return {
        "@context": {
            "@vocab": "https://schema.org/",
            "cr": f"{CROISSANT}#",
            "sc": "https://schema.org/",
            "conformsTo": "http://purl.org/dc/terms/conformsTo",
        },
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT,
        "name": snapshot.archive,
        "version": snapshot.snapshot_digest[:12],
        "description": f"Snapshot pinned for search revision {revision}: {snapshot.photos} photos "
        f"of {snapshot.shipments} shipments, {snapshot.damaged_photos} photos damaged.",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "split_manifest",
                "name": "split_manifest.csv",
                "description": "One row for each photo of the search side; the holdout is sealed.",
                "contentUrl": "split_manifest.csv",
                "encodingFormat": "text/csv",
                "sha256": manifest_digest,
            }
        ],
        "parcel_assets": {
            "snapshot_digest": snapshot.snapshot_digest,
            "label_commitment": snapshot.label_commitment,
            "decode_version": snapshot.decode_version,
            "photos": snapshot.photos,
            "shipments": snapshot.shipments,
            "damaged_photos": snapshot.damaged_photos,
            "rows_left_out": [row.document() for row in snapshot.bad_rows],
            "counts": snapshot.counts,
            "parts": dict(parts),
        },
    }
