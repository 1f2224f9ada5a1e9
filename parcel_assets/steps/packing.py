"""Gather what goes into a packet: records by their digests, measurements, and what follows.

What follows from records, and every word, is decided in core.packet and its neighbours; measuring,
signing and drawing are left to ports. Nothing is published here.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parcel_assets.core.chain import Chain
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import SettingError
from parcel_assets.core.packet import (
    CROISSANT_FILE,
    KEY_FILE,
    LEDGER_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PLAN_FILE,
    RECEIPTS_FILE,
    REPORT_FILE,
    SCORES_FILE,
    SERVING_FILE,
    SIGNATURE_FILE,
    SUMS_FILE,
    TRIALS_FILE,
    VERDICT_FILE,
    evidence_file,
    pretty_json,
)
from parcel_assets.core.packet_closed import closed_verdict
from parcel_assets.core.packet_files import (
    SCORE_COLUMNS,
    derived_files,
    digest_list,
    json_lines,
    ledger_lines,
    pictures_of,
    read_events,
)
from parcel_assets.core.packet_page import verdict_document
from parcel_assets.core.packet_readme import readme
from parcel_assets.core.packet_text import croissant, csv_table, model_card
from parcel_assets.core.ports import Scores
from parcel_assets.core.search import fold_search
from parcel_assets.core.serving import serving_estimate
from parcel_assets.core.stage import Stage
from parcel_assets.core.statistics import Costs
from parcel_assets.core.table import table_rows, unpack_scores
from parcel_assets.core.thresholds import cost_curve
from parcel_assets.core.timestamps import token_digests
from parcel_assets.steps.admission import StageSession

GOLDEN_PHOTOS = 64
MANIFEST_COLUMNS = ("photo_id", "shipment_id", "part", "pixel_digest", "damaged", "damage_type")
CURVE_COLUMNS = ("threshold", "missed", "needless", "cost_per_1000")
EXPORT_FILES = frozenset({"model.onnx", "golden_inputs.npy", "golden_outputs.npy"})

Contents = dict[str, bytes]


def packet_contents(session: StageSession) -> Contents:
    """Return all files of the packet, signature included."""
    chain, store = session.chain, session.ports.store
    files = _records(session, Stage.PACKET.earlier)
    files |= {
        TRIALS_FILE: json_lines(store.get_document(chain.table.table_document)),
        MODEL_FILE: store.get(chain.rerun.model),
        **_data_files(session),
        **_validation_files(session),
        **_measured(session),
    }
    files |= derived_files(files)
    verdict = verdict_document(files)
    files[VERDICT_FILE] = pretty_json(verdict)
    files["model_card.md"] = model_card(files, verdict, chain.plan.purpose)
    return _signed(session, files)


def closed_contents(session: StageSession) -> Contents:
    """Return all files of the record of a search that a person closed, as far as it came."""
    chain = session.chain
    stages = current_stages(chain)
    files = _records(session, stages)
    rows = table_rows(chain.plan, fold_search(chain.plan, chain.events))
    files[TRIALS_FILE] = json_lines([row.document() for row in rows])
    if Stage.SPLIT in stages:
        files |= _data_files(session)
    if Stage.RERUN in stages:
        files |= _validation_files(session)
    files |= derived_files(files)
    files[VERDICT_FILE] = pretty_json(closed_verdict(files))
    return _signed(session, files)


def current_stages(chain: Chain) -> tuple[Stage, ...]:
    """Return the stages before the packet whose evidence is there and made from what is there."""
    found: list[Stage] = []
    for stage in Stage.PACKET.earlier:
        evidence = chain.evidence.get(stage)
        if evidence is None or any(
            evidence.inputs.get(str(one)) != chain.digests.get(one) for one in stage.earlier
        ):
            break
        found.append(stage)
    return tuple(found)


def _signed(session: StageSession, files: Contents) -> Contents:
    """Return the files with their words, their list and its signature."""
    ports = session.ports
    if ports.render_report is None:
        raise SettingError(
            "no report renderer",
            expected="a renderer among the ports",
            where=f"{Stage.PACKET} of {session.chain.revision}",
            remedy="Open the ports with `wiring.open_ports`.",
        )
    is_closed = MODEL_FILE not in files
    files["README.md"] = readme(
        session.chain.revision, files[KEY_FILE], read_events(files), is_closed=is_closed
    )
    files[REPORT_FILE] = ports.render_report(files)
    files[SUMS_FILE] = digest_list(files)
    files[SIGNATURE_FILE] = ports.signer.sign(files[SUMS_FILE])
    return files


def _records(session: StageSession, stages: Sequence[Stage]) -> Contents:
    """Return plan, ledger, key, receipts, tokens, and the stages' evidence with its pictures."""
    chain, store = session.chain, session.ports.store
    files = {evidence_file(one): store.get(chain.digests[one]) for one in stages}
    events = session.ports.ledger.events(chain.revision)
    files |= {path: store.get(digest) for path, digest in token_digests(events).items()}
    files |= {
        PLAN_FILE: pretty_json(chain.plan.document()),
        LEDGER_FILE: ledger_lines(events),
        KEY_FILE: session.ports.signer.public_key(),
        RECEIPTS_FILE: pretty_json(chain.observed.get("receipts", [])),
    }
    return files | {name: store.get(digest) for name, digest in pictures_of(files).items()}


def _data_files(session: StageSession) -> Contents:
    """Return the search side's manifest and the description of the snapshot."""
    chain, store = session.chain, session.ports.store
    rows: list[dict[str, Any]] = []
    attributes: set[str] = set()
    for part in ("train", "validation"):
        for row in store.get_document(chain.split.parts[part].rows):
            plain = {key: value for key, value in row.items() if key != "attributes"}
            rows.append({**row["attributes"], **plain, "part": part})
            attributes |= row["attributes"].keys()
    columns = (*MANIFEST_COLUMNS, *sorted(attributes - set(MANIFEST_COLUMNS)))
    manifest = csv_table(columns, ({name: row.get(name) for name in columns} for row in rows))
    parts = {
        name: {"photos": part.photos, "shipments": part.shipments}
        for name, part in chain.split.parts.items()
    }
    described = croissant(chain.snapshot, chain.revision, digest_bytes(manifest), parts)
    return {MANIFEST_FILE: manifest, CROISSANT_FILE: pretty_json(described)}


def _validation_files(session: StageSession) -> Contents:
    """Return the validation scores of the released model and the reference, and the cost curve."""
    chain, store = session.chain, session.ports.store
    rows = store.get_document(chain.split.parts["validation"].rows)
    scores, reference = (
        unpack_scores(store.get(one.scores), len(rows))
        for one in (chain.rerun.own, chain.rerun.reference)
    )
    scored = [
        {**row, "score": float(ours), "reference_score": float(theirs)}
        for row, ours, theirs in zip(rows, scores, reference, strict=True)
    ]
    return {
        SCORES_FILE: csv_table(SCORE_COLUMNS, scored),
        "selection/cost_curve.csv": _curve(chain, scores, [row["damaged"] for row in rows]),
    }


def _curve(chain: Chain, scores: Scores, damaged: list[bool]) -> bytes:
    metric = chain.plan.metric
    costs = Costs(metric.missed_damage, metric.needless_review)
    curve = cost_curve(
        scores, np.array(damaged, dtype=np.bool_), costs, metric.threshold_grid_points
    )
    points = zip(
        curve.thresholds.tolist(),
        curve.missed.tolist(),
        curve.needless.tolist(),
        curve.cost_per_1000.tolist(),
        strict=True,
    )
    return csv_table(CURVE_COLUMNS, (dict(zip(CURVE_COLUMNS, one, strict=True)) for one in points))


def _measured(session: StageSession) -> Contents:
    """Return the serving estimate, the environment it was read in, and the ONNX export."""
    chain, ports = session.chain, session.ports
    model = ports.store.path(chain.rerun.model)
    ports.notify("progress", {"stage": str(Stage.PACKET), "done": 0, "total": 2})
    reading = dict(ports.serving.measure(model, chain.plan.preprocess.image_size_pixels))
    environment = reading.pop("environment", {})
    ports.ledger.renew(session.lease)
    ports.notify("progress", {"stage": str(Stage.PACKET), "done": 1, "total": 2})
    validation = chain.split.parts["validation"]
    pixels = np.load(ports.store.path(validation.pixels), mmap_mode="r", allow_pickle=False)
    files: Contents = {}
    with tempfile.TemporaryDirectory(prefix="parcel-assets-export-") as private:
        golden = np.ascontiguousarray(pixels[:GOLDEN_PHOTOS])
        exported = dict(ports.serving.export_onnx(model, golden, Path(private)))
        for name in EXPORT_FILES.intersection(exported["files"]):
            files[f"model/{name}"] = (Path(private) / name).read_bytes()
    ports.ledger.renew(session.lease)
    files["model/export.json"] = pretty_json(exported)
    files["environment.json"] = pretty_json(environment)
    files[SERVING_FILE] = pretty_json(serving_estimate(reading))
    return files
