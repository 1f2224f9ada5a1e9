"""Later searches on a grown archive: a tranche of their own, and the first one's packet stands.

Everything is real but training, pictures and the table's validator: archive, pin, split, worker
processes, ledger, vault process, packet.
"""

import hashlib
import hmac
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyrage  # type: ignore[import-untyped]  # ships no types
import pytest
from PIL import Image

from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.adapters.identity_host import measure_identity
from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.packet_folder import verify_packet
from parcel_assets.adapters.report_html import render_report
from parcel_assets.adapters.signer_ecdsa import EcdsaSigner
from parcel_assets.adapters.source_folder import FolderSource
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.adapters.vault_age import AgeVault
from parcel_assets.core.codec import canonical_json, keyed_digest
from parcel_assets.core.errors import (
    AdmissionError,
    HoldoutError,
    LeaseHeldError,
    PlanError,
    SplitError,
)
from parcel_assets.core.evidence import FinalBody, SplitBody
from parcel_assets.core.final import FinalResult, judge_holdout
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.plan import Plan, SnapshotPlan
from parcel_assets.core.ports import ArchiveSource, Ports
from parcel_assets.core.snapshot import Label, label_rows
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.tranches import taken_shipments
from parcel_assets.defs.metadata import describe
from parcel_assets.steps import disclosure
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.data import pin_archive, pin_snapshot, register_plan, split_shipments
from parcel_assets.steps.disclosure import release_holdout
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.holdouts import holdout_status, revision_lines
from parcel_assets.steps.ledger import audit_ledger
from parcel_assets.steps.release import build_packet
from parcel_assets.steps.search import close_search, run_trial_batches
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.adapters.archive_helpers import draw_smooth, usual_rows, write_archive
from parcel_assets_tests.fake_training import FakeSampler
from parcel_assets_tests.release_story import FakeServing
from parcel_assets_tests.search_world import small_plan
from parcel_assets_tests.steps.desk import FakePictures, FakeValidator

TRAINER = "parcel_assets_tests.fake_training:FakeTrainer"
SHUT = cast("Any", None)


def judged_with(**changes: str) -> Callable[..., FinalResult]:
    """Return a judge of holdouts whose answer differs in one field."""
    return lambda *asked: judge_holdout(*asked).model_copy(update=changes)


class Depot:
    """One archive and everything that searches on it share, in one folder."""

    def __init__(self, folder: Path, url: str, shipments: int = 60) -> None:
        self.folder = folder
        self.archive = write_archive(folder / "archive", usual_rows(shipments))
        self.store = FileStore(folder / "store")
        self.ledger = SqlLedger(url)
        self.vault = AgeVault(folder / "vault", folder / "keys", folder / "store", trainer=TRAINER)

    @property
    def ports(self) -> Ports:
        """Everything open, the vault as it is now."""

        def open_source(section: SnapshotPlan, side_pixels: int) -> ArchiveSource:
            return FolderSource(section, self.archive, side_pixels)

        command = (sys.executable, "-m", "parcel_assets_tests.fake_worker", "{}")
        return Ports(
            ledger=self.ledger,
            store=self.store,
            open_source=open_source,
            open_engine=lambda: LocalEngine(self.folder / "logs", command),
            sampler=lambda _name: FakeSampler(),
            measure_identity=measure_identity,
            validator=FakeValidator(),
            vault=self.vault,
            signer=EcdsaSigner(self.folder / "release-key"),
            registry=SHUT,
            serving=FakeServing(),
            pictures=cast("Any", FakePictures()),
            verify_packet=verify_packet,
            packets=self.folder / "packets",
            custodian=self.folder / "custodian",
            workers=1,
            render_report=render_report,
        )

    def plan(self, **changes: Any) -> Plan:
        """Return a plan of three short trials, pinned to the archive as it is now."""
        usual: dict[str, Any] = {
            "search__budget_trials": 3,
            "snapshot__digest": "",
            "pruning__warm_up_trials": 3,
            "rerun": {"seeds": [101, 102], "maximum_instability": 0.99},
            "final": {
                "target_cost_per_1000": 4000.0,
                "minimum_shipments": 1,
                "minimum_damaged_photos": 1,
            },
            "split": {"key": "depot", "holdout": 0.4, "train": 0.3, "validation": 0.3},
        }
        given = usual | changes
        section = small_plan(**given).snapshot
        digest = pin_archive(section, 16, self.ports).snapshot_digest
        return small_plan(**given | {"snapshot__digest": digest})

    def split(self, revision: str, **changes: Any) -> SplitBody:
        register_plan(revision, self.plan(**changes), self.ports)
        pin_snapshot(revision, self.ports)
        return SplitBody.model_validate(split_shipments(revision, self.ports).body)

    def search(self, revision: str) -> None:
        for step in (run_trial_batches, validate_table, rerun_selected, report_slices):
            step(revision, self.ports)

    def go(self, revision: str, **changes: Any) -> Evidence:
        """Take a search from its plan to its packet."""
        self.split(revision, **changes)
        self.search(revision)
        evaluate_final(revision, self.ports)
        return build_packet(revision, self.ports)

    def grow(self, shipments: int) -> None:
        write_archive(self.archive, usual_rows(shipments))

    def final(self, revision: str) -> FinalBody:
        return FinalBody.model_validate(evaluate_final(revision, self.ports).body)

    def holdout_of(self, body: SplitBody) -> set[str]:
        rows = self.store.get_document(body.parts["holdout"].rows)
        return {str(row["shipment_id"]) for row in rows}

    def verifies(self, packet: Evidence) -> bool:
        folder = self.folder / "packets" / packet.body["folder"]
        key = (self.folder / "packets" / packet.body["folder"] / "release_key.pem").read_bytes()
        found = verify_packet(folder, packet.body["packet_digest"], key)
        return not found["faults"] and bool(found["signature_ok"])


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite'}")


TRANCHES = {"split__holdout_tranches": 2}
FOLLOWS = {"parent": {"revision": "spring", "reason": "forty more shipments"}}


def test_a_second_search_on_a_grown_archive_reaches_its_own_final(
    tmp_path: Path, ledger_url: str
) -> None:
    depot = Depot(tmp_path, ledger_url)
    spring = depot.go("spring", **TRANCHES)
    chain, register = depot.ledger.events("spring"), dict(depot.ledger.assignments("test-parcels"))
    first = depot.final("spring")
    depot.grow(100)
    summer = depot.go("summer", **TRANCHES, **FOLLOWS)
    second = depot.final("summer")
    # each on its own tranche, opened once
    splits = [
        SplitBody.model_validate(split_shipments(one, depot.ports).body) for one in ("summer",)
    ]
    assert splits[0].tranche == 2
    assert first.holdout_digest != second.holdout_digest
    assert (first.reused_shipments, second.reused_shipments) == (0, 0)
    logs = list((tmp_path / "vault").glob("*/decryptions.log"))
    assert sorted(len(one.read_text().splitlines()) for one in logs) == [1, 1]
    # nothing of the first is changed, and no shipment moved
    assert depot.ledger.events("spring") == chain
    assert register.items() <= dict(depot.ledger.assignments("test-parcels")).items()
    assert depot.verifies(spring)
    assert depot.verifies(summer)
    assert not [f for one in ("spring", "summer") for f in audit_ledger(one, depot.ports).faults]
    lines = {one.revision: one for one in revision_lines(depot.ports)}
    assert lines["summer"].parent is not None
    assert lines["summer"].parent.reason == "forty more shipments"
    assert (lines["spring"].claim.tranche, lines["summer"].claim.tranche) == (1, 2)
    assert all(one.packet_digest and one.claim.state == "spent" for one in lines.values())
    (told,) = holdout_status(depot.ports)
    assert {(row["tranche"], row["state"], row["revision"]) for row in told["rows"]} == {
        (1, "spent", "spring"),
        (2, "spent", "summer"),
    }
    depot.ledger.close()


def die_after_the_seal(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the split of spring seal its tranche and end before its record."""
    register_plan("spring", depot.plan(**TRANCHES), depot.ports)
    pin_snapshot("spring", depot.ports)
    with monkeypatch.context() as patched:
        patched.setattr("parcel_assets.steps.data.split_sheet", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            split_shipments("spring", depot.ports)


class TestTranches:
    def test_the_search_sees_its_own_tranche_and_seals_the_others(self, depot: Depot) -> None:
        body = depot.split("spring", split__holdout_tranches=3)
        page = describe(load_chain("spring", depot.ports).evidence[Stage.SPLIT], depot.ports)
        assert page["tranche"] == 1
        document = depot.store.get_document(body.assignment_document)
        assert body.tranche == 1
        assert depot.holdout_of(body) == set(document["tranches"]["1"])
        assert [one["tranche"] for one in body.reserved] == [2, 3]
        sealed = {one.name for one in (depot.folder / "vault").iterdir() if one.is_dir()}
        assert sealed == {body.holdout_digest, *(one["holdout_digest"] for one in body.reserved)}
        # no row, no pixel and no photo id of what is kept for later lies in the store
        kept = {one for number in ("2", "3") for one in document["tranches"][number]}
        for path in (one for one in (depot.folder / "store").rglob("*.json") if one.is_file()):
            value = json.loads(path.read_bytes())
            rows = value if isinstance(value, list) else []
            if len(rows) == 120:  # the snapshot's own list of all photos
                continue
            assert not kept & {row.get("shipment_id") for row in rows if isinstance(row, dict)}

    def test_a_second_search_on_the_same_archive_gets_the_same_seal(self, depot: Depot) -> None:
        first = depot.split("spring", **TRANCHES)
        second = depot.split("summer", **TRANCHES)
        assert second.tranche == 2
        (kept,) = first.reserved
        assert (second.holdout_digest, second.holdout_commitment) == (
            kept["holdout_digest"],
            kept["commitment"],
        )

    def test_labels_that_changed_since_they_were_reserved_are_noticed(self, depot: Depot) -> None:
        first = depot.split("spring", **TRANCHES)
        document = depot.store.get_document(first.assignment_document)
        victim = document["tranches"]["2"][0]
        table = depot.archive / "labels.csv"
        lines = [
            line.replace("damaged,dent", "intact,").replace("intact,,", "damaged,tear,")
            if f",{victim}," in line
            else line
            for line in table.read_text().splitlines()
        ]
        assert lines != table.read_text().splitlines()
        table.write_text("\n".join(lines) + "\n")
        with pytest.raises(HoldoutError, match="other photos or labels than were sealed"):
            depot.split("summer", **TRANCHES)

    def test_with_nothing_free_the_split_says_who_has_it(self, depot: Depot) -> None:
        depot.split("spring", **TRANCHES)
        depot.split("summer", **TRANCHES)
        with pytest.raises(SplitError, match=r"spring \(sealed tranche 1\), summer"):
            depot.split("autumn", **TRANCHES)

    def test_a_search_closed_unopened_gives_its_tranche_back(self, depot: Depot) -> None:
        depot.split("spring", **TRANCHES)
        close_search("spring", depot.ports, reason="another idea")
        assert depot.split("summer", **TRANCHES, **FOLLOWS).tranche == 1

    def test_a_split_that_died_after_the_seal_keeps_its_tranche(
        self, depot: Depot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        die_after_the_seal(depot, monkeypatch)
        body = SplitBody.model_validate(split_shipments("spring", depot.ports).body)
        sealed = [e for e in depot.ledger.events("spring") if e.kind == Kind.HOLDOUT_SEALED]
        assert len(sealed) == 1
        assert sealed[0].body["tranche"] == body.tranche == 1

    def test_a_split_that_died_after_the_seal_has_claimed_its_tranche(
        self, depot: Depot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        die_after_the_seal(depot, monkeypatch)
        (told,) = holdout_status(depot.ports)
        assert (told["rows"][0]["state"], told["rows"][0]["revision"]) == ("sealed", "spring")
        assert depot.split("summer", **TRANCHES).tranche == 2
        assert split_shipments("spring", depot.ports).body["tranche"] == 1

    def test_two_splits_at_once_do_not_get_the_same_tranche(
        self, depot: Depot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for one in ("spring", "summer"):
            register_plan(one, depot.plan(**TRANCHES), depot.ports)
            pin_snapshot(one, depot.ports)
        refused: list[str] = []

        def meanwhile(*given: Any) -> dict[str, str]:
            monkeypatch.undo()  # the other comes while this one has looked and not yet sealed
            with pytest.raises(LeaseHeldError) as held:
                split_shipments("summer", depot.ports)
            refused.append(str(held.value))
            return taken_shipments(*given)

        monkeypatch.setattr("parcel_assets.steps.parts.taken_shipments", meanwhile)
        assert split_shipments("spring", depot.ports).body["tranche"] == 1
        assert "split of spring" in refused[0]
        assert split_shipments("summer", depot.ports).body["tranche"] == 2

    def test_shipments_that_newly_share_a_photo_across_tranches_stand_aside(
        self, depot: Depot
    ) -> None:
        document = depot.store.get_document(depot.split("spring", **TRANCHES).assignment_document)
        intact = [
            [one for one in document["tranches"][number] if int(one) % 3] for number in ("1", "2")
        ]
        here, there = intact[0][0], intact[1][0]
        images = depot.archive / "images"
        shutil.copy(images / f"{here}_0.jpg", images / f"{there}_0.jpg")
        body = depot.split("summer", **TRANCHES)
        assert body.quarantined == tuple(sorted((here, there)))
        assert not {here, there} & depot.holdout_of(body)

    def test_a_photo_of_another_search_s_tranche_that_was_encoded_anew_is_reported(
        self, depot: Depot
    ) -> None:
        document = depot.store.get_document(depot.split("spring", **TRANCHES).assignment_document)
        here, there = (document["tranches"][number][0] for number in ("1", "2"))
        images = depot.archive / "images"
        draw_smooth(images / f"{here}_0.jpg")
        Image.open(images / f"{here}_0.jpg").save(images / f"{there}_0.jpg", quality=60)
        (found,) = depot.split("summer", **TRANCHES).near_copies
        told = {found.photo: found.part, found.other: found.other_part}
        assert told == {
            f"images/{here}_0.jpg": "holdout tranche 1",
            f"images/{there}_0.jpg": "holdout",
        }

    def test_a_split_that_cannot_be_read_hides_no_other_and_frees_nothing(
        self, depot: Depot
    ) -> None:
        body = depot.split("spring", **TRANCHES)
        depot.store.path(body.assignment_document).unlink()
        with pytest.raises(SplitError, match="a split of spring that cannot be read"):
            depot.split("summer", **TRANCHES)
        (told,) = holdout_status(depot.ports)
        assert [one["revision"] for one in told["faults"]] == ["spring"]
        assert [one.revision for one in revision_lines(depot.ports)] == ["spring", "summer"]


class TestParent:
    """A search follows an earlier one of its archive, once nothing more comes of that one."""

    def test_an_unknown_parent_and_the_plan_itself_are_refused(self, depot: Depot) -> None:
        with pytest.raises(PlanError, match="parent 'spring', which is unknown"):
            depot.split("summer", **FOLLOWS)
        with pytest.raises(PlanError, match="parent 'spring', which is the plan itself"):
            depot.split("spring", **FOLLOWS)
        assert depot.ledger.revisions() == ()

    def test_a_parent_that_goes_on_is_refused_until_it_is_closed(self, depot: Depot) -> None:
        register_plan("spring", depot.plan(), depot.ports)
        for step in (pin_snapshot, split_shipments, run_trial_batches):
            step("spring", depot.ports)
            with pytest.raises(PlanError, match="parent 'spring', which has not ended: ") as no:
                register_plan("summer", depot.plan(**FOLLOWS), depot.ports)
            assert "parcel-assets close spring" in no.value.remedy
        close_search("spring", depot.ports, reason="another idea")
        register_plan("summer", depot.plan(**FOLLOWS), depot.ports)

    def test_a_parent_held_for_good_may_be_followed(self, depot: Depot) -> None:
        depot.split("spring", split__minimum=[{"part": "validation", "shipments": 10_000}])
        register_plan("summer", depot.plan(**FOLLOWS), depot.ports)  # no run of it goes on

    def test_a_search_of_another_archive_is_no_parent(self, depot: Depot) -> None:
        register_plan("spring", depot.plan(snapshot__archive="other-parcels"), depot.ports)
        close_search("spring", depot.ports, reason="the wrong belt")
        with pytest.raises(PlanError, match="a search of the archive 'other-parcels'"):
            register_plan("summer", depot.plan(**FOLLOWS), depot.ports)


class TestSpent:
    """One search that is judged, and what others may do with its shipments."""

    @pytest.fixture
    def judged(self, depot: Depot) -> Depot:
        depot.go("spring")
        return depot

    def test_a_spent_holdout_is_refused_by_name_allowed_by_plan_and_its_labels_released(
        self, judged: Depot, tmp_path: Path
    ) -> None:
        depot = judged
        # refused, naming the first few shipments, how many, and who opened them
        register_plan("summer", depot.plan(**FOLLOWS), depot.ports)
        pin_snapshot("summer", depot.ports)
        spent = sorted(
            depot.holdout_of(SplitBody.model_validate(split_shipments("summer", depot.ports).body))
        )
        with pytest.raises(AdmissionError) as refused:
            run_trial_batches("summer", depot.ports)
        assert refused.value.facts["gate"] == "holdout_unspent"
        words = f"{len(spent)} shipments ({', '.join(spent[:5])}, …), opened by spring"
        assert words in refused.value.facts["sentence"]
        # with tranches, only what came later is free
        depot.grow(80)
        fresh = depot.split("autumn", **TRANCHES, **FOLLOWS)
        assert not depot.holdout_of(fresh) & set(spent)
        # where the plan allows it, it is said wherever the result is
        before = depot.final("spring")
        packet = depot.go("winter", final={**depot.plan().final.model_dump(), "allow_spent": True})
        final = depot.final("winter")
        assert (final.reused_shipments, final.reused_times) == (len(spent), 1)
        folder = tmp_path / "packets" / packet.body["folder"]
        page = json.loads((folder / "VERDICT.json").read_bytes())["first_page"]["final"]
        assert page["reused_shipments"]["value"] == len(spent)
        assert page["reused_times"]["value"] == 1
        for name in ("model_card.md", "report.html"):
            assert (
                f"{len(spent)} shipments of this holdout were reused, 1 time"
                in (folder / name).read_text()
            )
        assert depot.verifies(packet)
        # the first search is what it was
        assert depot.final("spring") == before
        build_packet("spring", depot.ports)
        assert not [
            f for one in ("spring", "winter") for f in audit_ledger(one, depot.ports).faults
        ]
        self._release(depot, tmp_path / "auditor")

    def _release(self, depot: Depot, folder: Path) -> None:
        """Labels go to an auditor with a reason; commitment and counts follow from the files."""
        with pytest.MonkeyPatch.context() as patch:  # numbers are compared, not an older wording
            asked: dict[str, Any] = {
                "reason": "yearly audit",
                "folder": folder.with_name("refused"),
            }
            patch.setattr(disclosure, "judge_holdout", judged_with(outcome="other"))
            with pytest.raises(HoldoutError, match="do not give commitment and result"):
                release_holdout("spring", depot.ports, **asked)
            patch.setattr(disclosure, "judge_holdout", judged_with(sentence="Put otherwise."))
            told = release_holdout("spring", depot.ports, **asked | {"folder": folder})
        record = json.loads((folder / "commitment.json").read_bytes())
        labels = json.loads((folder / "labels.json").read_bytes())
        commitment = keyed_digest(bytes.fromhex(record["salt"]), labels)
        sealed = last_of(depot.ledger.events("spring"), Kind.HOLDOUT_SEALED)
        assert sealed is not None
        assert commitment == sealed.body["commitment"] == told["commitment"]
        assert (folder / "labels.json").read_bytes() == canonical_json(labels)
        header, *lines = (folder / "predictions.csv").read_text().splitlines()
        columns = header.split(",")
        rows = [dict(zip(columns, line.split(","), strict=True)) for line in lines]
        missed = sum(row["damaged"] == "true" and row["review"] == "false" for row in rows)
        assert missed == depot.final("spring").result["missed"]
        released = last_of(depot.ledger.events("spring"), Kind.HOLDOUT_RELEASED)
        assert released is not None
        assert released.body["reason"] == "yearly audit"
        count = len(depot.ledger.events("spring"))
        (folder.parent / "file").write_text("")
        for taken in (folder, folder.parent / "file"):  # nothing of an auditor's is overwritten
            with pytest.raises(HoldoutError, match="Nothing was released"):
                release_holdout("spring", depot.ports, reason="again", folder=taken)
        assert len(depot.ledger.events("spring")) == count


def test_no_label_is_released_before_the_one_look(depot: Depot, tmp_path: Path) -> None:
    body = depot.split("spring")
    with pytest.raises(HoldoutError, match="no final result"):
        release_holdout("spring", depot.ports, reason="curious", folder=tmp_path / "out")
    with pytest.raises(HoldoutError, match="no result of this search"):
        depot.vault.disclose(body.holdout_digest, "spring")
    assert not (tmp_path / "out").exists()
    assert Stage.FINAL not in {e.body.get("stage") for e in depot.ledger.events("spring")}


# ---- what the search side holds before the opening -----------------------------------------------

PLANTED = "zqx_planted_tear"
OWNERS = ("keys", "custodian", "archive")  # the key-holder's, the custodian's, the owner's


def plant(depot: Depot, shipments: set[str]) -> list[Label]:
    """Give every photo of some shipments a kind of damage that nobody else has."""
    table = depot.archive / "labels.csv"
    lines = table.read_text().splitlines()
    planted = [
        re.sub(r",(damaged|intact),[^,]*,", f",damaged,{PLANTED},", line)
        if line.split(",")[1] in shipments
        else line
        for line in lines
    ]
    table.write_text("\n".join(planted) + "\n")
    return list(FolderSource(depot.plan().snapshot, depot.archive, 16).read_labels())


def search_side(depot: Depot) -> dict[Path, bytes]:
    """Return every file that is left when key, custodian's folder and label table are away."""
    return {
        path: path.read_bytes()
        for path in sorted(depot.folder.rglob("*"))
        if path.is_file() and path.relative_to(depot.folder).parts[0] not in OWNERS
    }


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Depot, SplitBody, list[Label]]:
    """Return a searched revision whose holdout alone holds the planted kind of damage."""
    twin = Depot(tmp_path / "twin", f"sqlite:///{tmp_path / 'twin.sqlite'}")
    holdout = twin.holdout_of(twin.split("spring"))
    twin.ledger.close()
    depot = Depot(tmp_path / "depot", f"sqlite:///{tmp_path / 'depot' / 'ledger.sqlite'}")
    labels = plant(depot, holdout)
    body = depot.split("spring")
    assert depot.holdout_of(body) == holdout
    depot.search("spring")
    for name in OWNERS:
        (depot.folder / name).rename(tmp_path / name)
    inside = [one for one in labels if one.photo_id.split("/")[1][:4] in holdout]
    return depot, body, inside


def test_planted_labels_are_nowhere_on_the_search_side_beyond_declared_counts(
    planted: tuple[Depot, SplitBody, list[Label]],
) -> None:
    depot, _, labels = planted
    with_word = {
        path: data for path, data in search_side(depot).items() if PLANTED.encode() in data
    }
    assert with_word  # the declared counts name it, so that this search can find it
    for path, data in with_word.items():
        document = json.loads(data)  # evidence: neither database, nor log, nor array, nor picture
        assert document["stage"] in {str(Stage.SNAPSHOT), str(Stage.SPLIT)}, path
        del document["body"]["counts"]
        assert PLANTED not in json.dumps(document), path
    photos = {label.photo_id for label in labels}
    for stage in (Stage.SNAPSHOT, Stage.SPLIT):  # and what Dagster's pages show of them
        shown = repr(describe(load_chain("spring", depot.ports).evidence[stage], depot.ports))
        assert not [one for one in photos if one in shown]


def test_no_digest_on_the_search_side_can_be_guessed_back_to_a_label(
    planted: tuple[Depot, SplitBody, list[Label]],
) -> None:
    depot, body, labels = planted
    files = search_side(depot)
    told = set(re.findall(rb"[0-9a-f]{64}", b"\n".join(files.values())))
    told |= {hashlib.sha256(data).hexdigest().encode() for data in files.values()}
    assert body.holdout_commitment.encode() in told
    whole = label_rows(labels)
    shipment = [row for row in whole if row[0].startswith(whole[0][0][:-6])]
    guesses: list[Any] = [whole, shipment, *whole, *([row[1], row[2]] for row in shipment)]
    guesses += [{"labels": one, "holdout_digest": body.holdout_digest} for one in (whole, shipment)]
    guesses += [[body.holdout_digest, one] for one in (whole, shipment)]
    keys = [b"", b"depot", *(bytes.fromhex(one.decode()) for one in told)]
    for guess in guesses:
        plain = canonical_json(guess)
        assert hashlib.sha256(plain).hexdigest().encode() not in told
        for key in keys:
            digest = hmac.new(key, plain, hashlib.sha256).hexdigest().encode()
            assert digest not in told, (guess, key)
    # the attack is a real one: with the salt, which only the key gives, the right guess is known
    sealed = (depot.folder / "vault" / body.holdout_digest / "labels.age").read_bytes()
    kept = (depot.folder.parent / "keys" / "holdout.key").read_text().strip()
    content = json.loads(pyrage.decrypt(sealed, [pyrage.x25519.Identity.from_str(kept)]))
    assert keyed_digest(bytes.fromhex(content["salt"]), whole) == body.holdout_commitment


# ---- a key-holder elsewhere ----------------------------------------------------------------------


def test_a_key_holder_s_key_is_needed_to_open_and_never_lies_here(
    depot: Depot, tmp_path: Path
) -> None:
    identity = pyrage.x25519.Identity.generate()
    key = tmp_path / "with-the-key-holder"
    key.write_text(f"# created: today\n# public key: age1…\n{identity}\n")  # as age-keygen does
    key.chmod(0o600)
    places = (tmp_path / "vault", tmp_path / "keys", tmp_path / "store")
    recipient = str(identity.to_public())
    depot.vault = AgeVault(*places, trainer=TRAINER, recipient=recipient)
    depot.split("spring")
    depot.search("spring")
    assert not (tmp_path / "keys" / "holdout.key").exists()
    with pytest.raises(HoldoutError) as held:
        evaluate_final("spring", depot.ports)
    assert held.value.facts["hold"] == "hold:key-holder"
    assert "parcel-assets holdout open spring --key" in held.value.remedy
    depot.vault = AgeVault(*places, trainer=TRAINER)  # the setting is forgotten: held all the same
    with pytest.raises(HoldoutError, match="whose key is not here"):
        evaluate_final("spring", depot.ports)
    other = tmp_path / "another"
    other.write_text(str(pyrage.x25519.Identity.generate()))
    other.chmod(0o600)
    depot.vault = AgeVault(*places, trainer=TRAINER, key=other, without_l3=True)
    with pytest.raises(HoldoutError, match="to which the labels were sealed"):
        evaluate_final("spring", depot.ports)
    depot.vault = AgeVault(*places, trainer=TRAINER, recipient=recipient, key=key)
    with pytest.raises(HoldoutError, match="cannot claim L3") as refused:
        evaluate_final("spring", depot.ports)
    assert "--without-l3" in refused.value.remedy
    assert not list((tmp_path / "vault").glob("*/opened.json"))
    depot.vault = AgeVault(*places, trainer=TRAINER, key=key, without_l3=True)
    final = depot.final("spring")
    assert final.outcome in {"PASS", "FAIL", "INSUFFICIENT"}
    # one user searched and opened here, so that no more is claimed than on a laptop
    assert final.evidence_level == "L1"
