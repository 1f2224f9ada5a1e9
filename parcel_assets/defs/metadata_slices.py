"""The page of a slice report: what a person reads who must decide, then every slice in numbers."""

from collections.abc import Mapping
from typing import Any

from parcel_assets.core.approval import decide_commands, may_decide, who_words
from parcel_assets.core.codec import digest_value
from parcel_assets.core.consequence import consequences
from parcel_assets.core.evidence import SliceBody
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.pending import pending_of
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Evidence
from parcel_assets.defs.metadata_values import NO_VALUE, picture, table
from parcel_assets.defs.plots import slice_heat_map_md
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.decision_numbers import numbers_seen

WORST_NAMED = 6  # photos of a slice named in a table


def slices_metadata(evidence: Evidence, ports: Ports) -> dict[str, Any]:
    """Return a slice report's page: what is held and what accepting means first, then all."""
    body = SliceBody.model_validate(evidence.body)
    names = (
        *("name", "measure", "candidate", "reference", "difference", "lower", "upper", "margin"),
        *("harm_chance_adjusted", "shrunken_difference"),
    )
    words = [
        {
            "name": one["name"],
            "role": one["role"],
            "outcome": str(one["outcome"]).upper(),
            "in_words": after_name(one),
        }
        for one in body.slices
    ]
    shown: dict[str, Any] = {
        "disposition": body.disposition,
        "protected_passed": body.protected_passed,
    }
    if not body.protected_passed:
        shown |= _held(evidence, ports)
    shown["slices"] = table(words)
    shown["heat_map"] = slice_heat_map_md(body.slices)
    if body.worst_sheet is not None:
        shown["missed_damage"] = picture(ports.store.get(body.worst_sheet), "missed damage")
    for name, sheet in body.worst_sheets.items():
        shown[f"missed_{name}"] = picture(ports.store.get(sheet), f"missed damage: {name}")
    shown["behind_each_slice"] = table(
        [
            {
                "name": name,
                "shipments": behind["shipments_total"],
                "photos": behind["photos_total"],
                "missed": behind["missed_total"],
                "worst_photos": ", ".join(
                    str(one["photo_id"]) for one in behind["photos"][:WORST_NAMED] if one["missed"]
                )
                or NO_VALUE,
            }
            for name, behind in body.members.items()
        ]
    )
    shown["slice_numbers"] = table([{name: one.get(name) for name in names} for one in body.slices])
    return shown


def _held(evidence: Evidence, ports: Ports) -> dict[str, Any]:
    """Return what a person reads who is to decide: what is held, what it means, how to answer."""
    chain = load_chain(evidence.revision, ports)
    seen = numbers_seen(chain, ports)
    held = {str(one["name"]): after_name(one) for one in chain.slices.slices}
    approvers = chain.plan.approvers
    informed = " (slice-informed: in the place of a held one)" * chain.rerun.slice_informed
    answered = last_of(chain.events, Kind.DECISION_RECORDED)
    if answered is not None and pending_of(chain) is None:
        decided = f"{answered.body['outcome']}, by {who_words(answered.body)}"
        how_to_answer = {"decided": decided}
    else:
        how_to_answer = {
            "who_may_decide": "; ".join(may_decide(approvers)),
            "next_step": "materialize quality_decision, or use the command below",
            "next_command": decide_commands(evidence.revision, approvers)["accept"],
        }
    return {
        "candidate": f"{chain.rerun.selected_trial}{informed}",
        **{f"held/{one['name']}": held[one["name"]] for one in seen["slices_in_parcels"]},
        **{f"if_accepted/{name}": words for name, words in consequences(seen).items()},
        "slice_evidence": digest_value(evidence.document()),
        **how_to_answer,
    }


def after_name(one: Mapping[str, Any]) -> str:
    """Return a slice's sentence without the name that stands beside it."""
    return str(one["sentence"]).removeprefix(f"{one['name']}: ")
