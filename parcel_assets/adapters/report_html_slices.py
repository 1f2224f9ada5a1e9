"""The report's chapters on slices and pictures: for which photos the candidate works."""

from typing import Any

from parcel_assets.adapters.report_html_charts import slice_interval
from parcel_assets.adapters.report_html_parts import (
    STYLES,
    Packet,
    cell,
    chip,
    picture,
    section,
    table,
)
from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets.core.packet import CROISSANT_FILE, read_json
from parcel_assets.core.packet_files import worst_sheet_file
from parcel_assets.core.slice_plan import crossing_words
from parcel_assets.core.slice_words import number_words

PHOTOS_NAMED = 12


def slices_chapter(packet: Packet) -> Markup:
    """Return every slice with its outcome, numbers, interval and sentence."""
    heads = [("slice", False), ("role", False), ("outcome", False), ("shipments", True),
             ("damaged", True), ("candidate", True), ("in use", True), ("difference", True),
             ("better ← 0 → worse", False)]  # fmt: skip
    rows: list[Markup] = []
    for one in packet.slices["slices"]:
        style = STYLES[one["outcome"]]
        unit = " %" if one["measure"] == "miss_rate" else ""
        rows.append(
            tag("tr", tag("td", tag("b", one["name"]), _crossing(one)), cell(one["role"]), tag("td",
                chip(one["outcome"])), cell(one["shipments"], is_number=True),
                cell(one["damaged_photos"], is_number=True),
                cell(_amount(one, "candidate", unit), is_number=True),
                cell(_amount(one, "reference", unit), is_number=True),
                _difference_cell(one, " pp" if unit else ""),
                tag("td", tag("div", slice_interval(one, style), style="width:165px")),
                class_="joined")
        )  # fmt: skip
        rows.append(
            tag(
                "tr",
                tag(
                    "td",
                    one["sentence"].removeprefix(f"{one['name']}: "),
                    _among_others(one),
                    _behind(packet.slices["members"].get(one["name"])),
                    colspan=len(heads),
                ),
                class_="words",
            )
        )
    return section(
        "slices",
        "Slice by slice",
        "The candidate against the model in use, on the same validation shipments, each at "
        "its "
        "own threshold: missed damage where the slice is a kind of damage, else cost per 1,000. "
        "PASS needs proof of being no worse within the margin (shaded, and the unit of the "
        "last column); too little evidence is "
        "INSUFFICIENT, which is not a pass.",
        table(heads, rows),
    )


def _crossing(one: dict[str, Any]) -> Markup | None:
    """Return what else a photo of the slice has, where the slice is a crossing."""
    if not one.get("crossed_with"):
        return None
    words = f"{one['dimension']} = {one['value']}{crossing_words(one['crossed_with'])}"
    return tag("div", words, class_="small")


def _among_others(one: dict[str, Any]) -> str:
    """Return how the difference looks among the other slices: never what decides."""
    words = ""
    chance = one.get("harm_chance_adjusted")
    if chance is not None and one["difference"] > 0:
        shown = f"{chance:.0%}" if chance >= 0.01 else "less than 1%"
        words += f" Chance alone shows as much harm in {shown} of cases"
        words += ", the other slices of its role counted."
    if one.get("shrunken_difference") is not None:
        unit = " pp" if one["measure"] == "miss_rate" else ""
        words += " Drawn towards the mean of its kind, for display only: "
        words += f"{_amount(one, 'shrunken_difference', unit, sign=True)}."
    return words


def _behind(members: dict[str, Any] | None) -> Markup | None:
    """Return who stands behind a slice: shipments by name, photos with the worst first."""
    if not members or not members["photos"]:
        return None
    shipments, photos = members["shipments"], members["photos"]
    more = members["shipments_total"] - len(shipments)
    listed = [
        tag("li", tag("code", one["photo_id"]), f" of {one['shipment_id']}, score "
            f"{one['score']:.3f}{', missed' if one['missed'] else ''}")
        for one in photos[:PHOTOS_NAMED]
    ]  # fmt: skip
    rest = members["photos_total"] - len(listed)
    return tag(
        "details",
        tag("summary", f"Behind it: {members['shipments_total']} shipments, "
            f"{members['photos_total']} photos, {members['missed_total']} missed"),
        tag("p", f"{', '.join(shipments)}{f' and {more} more' if more else ''}", class_="small"),
        tag("ul", listed, tag("li", f"and {rest} more") if rest else None, class_="small"),
    )  # fmt: skip


def _difference_cell(one: dict[str, Any], unit: str) -> Markup:
    """Return the difference on a tint: greener the better, redder the worse, full at one margin."""
    value, tint = one["difference"], None
    if value is not None and one["margin"]:
        share = min(abs(value) / one["margin"], 1.0)
        colour = "bad" if value > 0 else "good"
        tint = f"background:color-mix(in srgb, var(--{colour}) {30 * share:.0f}%, transparent)"
    words = _amount(one, "difference", unit, sign=True)
    return tag("td", words, class_="number", style=tint)


def _amount(one: dict[str, Any], key: str, unit: str, *, sign: bool = False) -> str:
    if one[key] is None:
        return "not known"
    return f"{number_words(one, key, sign=sign)}{unit}".replace("-", "\N{MINUS SIGN}")


def pictures_chapter(packet: Packet) -> Markup:
    """Return the parts, the worst pictures and the contact sheet."""
    worst = picture(
        packet.files, "slices/worst_sheet.png",
        "Missed damage on validation, most confidently missed first.",
    )  # fmt: skip
    of_slices = [
        tag("div", tag("h3", f"Missed in {name}"), picture(packet.files, worst_sheet_file(name),
            f"Missed damage of the protected slice {name}, most confidently missed first."))
        for name in sorted(packet.slices.get("worst_sheets", {}))
    ]  # fmt: skip
    contact = picture(
        packet.files, "data/contact_sheet.png", "Training photos by type of damage, as the model "
        "sees them.",
    )  # fmt: skip
    return section(
        "pictures",
        "Data and pictures",
        "Shipments, not photos, were assigned to the parts, so no shipment is seen twice. Of the "
        "holdout nothing is shown: no picture and no label.",
        _parts(packet),
        tag(
            "div",
            tag("div", tag("h3", "Worst pictures"), worst or tag("p", "No damage was missed.")),
            tag("div", tag("h3", "Contact sheet"), contact),
            class_="pair",
        ),
        join(*of_slices),
    )


def _parts(packet: Packet) -> Markup:
    parts = read_json(packet.files, CROISSANT_FILE)["parcel_assets"]["parts"]
    heads = [("part", False), ("shipments", True), ("photos", True)]
    rows = [
        tag("tr", cell(name), cell(f"{one['shipments']:,}", is_number=True),
            cell(f"{one['photos']:,}", is_number=True))
        for name in ("train", "validation", "holdout")
        for one in [parts[name]]
    ]  # fmt: skip
    return tag("div", table(heads, rows), style="max-width:420px;margin-bottom:24px")
