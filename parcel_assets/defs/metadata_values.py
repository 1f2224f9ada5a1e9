"""How values look on Dagster's pages: rounded numbers, tables, pictures; and nothing of stages."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from parcel_assets.core.statistics import cost_words

DIGITS = 4
NO_VALUE = "(none)"
# fields that are costs per 1,000, wherever they stand
COSTS = {
    "cost_per_1000", "standard_error", "guarded_standard_error", "upper_bound_guarded",
    "lower_bound", "review_all_cost_per_1000", "review_none_cost_per_1000", "review_all",
    "review_none", "mean", "low", "high", "standard_deviation", "tolerance",
    "own_seed_difference", "difference", "lower", "upper",
}  # fmt: skip


def readable(value: Any) -> Any:
    """Return a JSON value with every number in it at four significant digits."""
    if isinstance(value, Mapping):
        return {str(key): readable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def costs_shown(fields: Mapping[str, Any], missed: int | None) -> dict[str, Any]:
    """Return fields with their costs rounded to what so many misses carry (`cost_words`)."""
    return {
        name: float(cost_words(one, missed)) if name in COSTS and isinstance(one, float) else one
        for name, one in fields.items()
    }


def plain(value: Any) -> Any:
    """Return a JSON value as Dagster shows it: text and numbers inline, the rest as JSON."""
    if isinstance(value, Mapping):
        return dg.MetadataValue.json(readable(value))
    if isinstance(value, list | tuple | set | frozenset):
        return dg.MetadataValue.json(readable(list(value)))
    if isinstance(value, float):
        return readable(value)
    if isinstance(value, str):
        return dg.MetadataValue.text(str(value))  # an enum's member reads as its word
    if value is None or isinstance(value, bool | int):
        return value
    return dg.MetadataValue.text(str(value))


def table(rows: Sequence[Mapping[str, Any]]) -> dg.TableMetadataValue | str:
    """Return rows as an inline table; a row may lack columns. No rows at all are a word."""
    if not rows:
        return "none"
    names = list(dict.fromkeys(name for row in rows for name in row))
    records = [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in rows]
    columns = [dg.TableColumn(name, _kind(name, records)) for name in names]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))


def facts(fields: Mapping[str, Any]) -> dg.TableMetadataValue | str:
    """Return named numbers and words as a table of their own, in the given order."""
    flat = {name: one for name, one in fields.items() if not isinstance(one, Mapping | list)}
    return table(
        [
            {"what": name.replace("_", " "), "value": _word(one)}
            for name, one in flat.items()
            if one is not None
        ]
    )


def _word(value: Any) -> str:
    """Return a value as a word; a whole number has no decimals."""
    shown = readable(value)
    return str(int(shown)) if isinstance(shown, float) and shown.is_integer() else str(shown)


def picture(png: bytes, words: str) -> dg.MarkdownMetadataValue:
    """Return a PNG that opens in the page itself."""
    return dg.MetadataValue.md(
        f"![{words}](data:image/png;base64,{base64.b64encode(png).decode()})"
    )


def _cell(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float):
        return float(readable(value))
    return value if value is None or isinstance(value, bool | int) else str(value)


def _kind(name: str, records: Sequence[dg.TableRecord]) -> str:
    values = [one.data[name] for one in records if one.data.get(name) is not None]
    if values and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return "float" if any(isinstance(one, float) for one in values) else "int"
    return "string"
