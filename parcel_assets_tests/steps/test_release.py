"""A packet appears whole or not at all, and the registry refuses what R1 refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parcel_assets.core.errors import AdmissionError, PacketError, RegistryError, StorageError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.steps.release import build_packet, register_model
from parcel_assets_tests.release_story import REVISION, FakeServing, Story, tell


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return tell(tmp_path)


def folders(story: Story) -> list[str]:
    return sorted(one.name for one in story.ports.packets.iterdir() if one.is_dir())


def record_again(story: Story, stage: Stage, **changes: object) -> None:
    """Leave other evidence of a stage, as a later run would; what came after it is outdated."""
    lease = story.ledger.acquire(REVISION, "test")
    document = story.store.get_document(story.evidence[stage])
    document["body"].update(changes)
    digest = story.store.put_document(document)
    entry = {"stage": str(stage), "evidence": digest, "inputs": document["inputs"]}
    story.ledger.append(lease, [(Kind.STAGE_RECORDED, entry)])
    story.ledger.release(lease)


def test_a_packet_is_published_recorded_and_named_current(story: Story) -> None:
    evidence = build_packet(REVISION, story.ports)
    assert evidence.body["verdict"] == "released"
    assert folders(story) == [REVISION]
    current = json.loads((story.ports.packets / "CURRENT").read_bytes())
    assert current["sample-parcels"]["packet_digest"] == evidence.body["packet_digest"]
    assert story.events[-1].kind == Kind.PACKET_PUBLISHED


def test_unchanged_evidence_measures_and_writes_nothing_again(story: Story) -> None:
    first = build_packet(REVISION, story.ports)
    events = len(story.events)
    assert build_packet(REVISION, story.ports) == first
    assert len(story.events) == events
    assert isinstance(story.ports.serving, FakeServing)
    assert story.ports.serving.calls == 1


def test_a_crash_between_rename_and_record_is_taken_up(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("parcel_assets.steps.release._record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_packet(REVISION, story.ports)
    digest = story.ports.verify_packet(story.ports.packets / REVISION, None, None)["packet_digest"]
    assert build_packet(REVISION, story.ports).body["packet_digest"] == digest


def test_a_crash_while_writing_leaves_no_packet(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "report.html":
            raise OSError(28, "No space left on device", str(self))
        return write(self, data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(StorageError, match="No space left on device while writing"):
            build_packet(REVISION, story.ports)
    assert folders(story) == []
    assert build_packet(REVISION, story.ports).body["verdict"] == "released"


def test_a_damaged_packet_is_kept_for_whoever_looks_into_it(story: Story) -> None:
    build_packet(REVISION, story.ports)
    place = story.ports.packets / REVISION / "report.html"
    place.write_bytes(b"another report")
    with pytest.raises(PacketError, match=r"report\.html: was changed") as refused:
        build_packet(REVISION, story.ports)
    assert refused.value.facts["file"] == "report.html"
    assert place.read_bytes() == b"another report"


def test_a_packet_of_older_evidence_is_moved_aside(story: Story) -> None:
    first = build_packet(REVISION, story.ports)
    lease = story.ledger.acquire(REVISION, "test")
    document = story.store.get_document(story.evidence[Stage.FINAL])
    # recorded again: the same result, at a later head
    head = story.events[-1]
    document["head"] = {"sequence": head.sequence, "digest": head.digest}
    digest = story.store.put_document(document)
    entry = {"stage": str(Stage.FINAL), "evidence": digest, "inputs": document["inputs"]}
    story.ledger.append(lease, [(Kind.STAGE_RECORDED, entry)])
    story.ledger.release(lease)
    second = build_packet(REVISION, story.ports)
    assert second.body["packet_digest"] != first.body["packet_digest"]
    aside = f"{REVISION}.superseded-{first.body['packet_digest'][:8]}"
    assert folders(story) == [REVISION, aside]
    assert not story.ports.verify_packet(story.ports.packets / aside, None, None)["faults"]


# ---- the registry ------------------------------------------------------------------------------


def test_a_released_model_is_registered_once(story: Story) -> None:
    build_packet(REVISION, story.ports)
    evidence = register_model(REVISION, story.ports)
    assert evidence.body["version"] == 1
    assert register_model(REVISION, story.ports) == evidence
    other_registry_run = replace(story.ports)
    assert register_model(REVISION, other_registry_run) == evidence


def test_a_failed_performance_gate_is_told_by_the_packet_and_refused_by_the_registry(
    tmp_path: Path,
) -> None:
    story = tell(tmp_path, outcome="FAIL")
    assert build_packet(REVISION, story.ports).body["verdict"] == "rejected:performance"
    assert not (story.ports.packets / "CURRENT").exists()
    with pytest.raises(AdmissionError, match="The target is missed") as refused:
        register_model(REVISION, story.ports)
    assert refused.value.facts["gate"] == "target"
    assert refused.value.facts["hold"] == "rejected:performance"


def test_too_little_final_evidence_holds(tmp_path: Path) -> None:
    story = tell(tmp_path, outcome="INSUFFICIENT")
    assert build_packet(REVISION, story.ports).body["verdict"] == "hold:final-evidence"
    with pytest.raises(AdmissionError) as refused:
        register_model(REVISION, story.ports)
    assert refused.value.facts["hold"] == "hold:final-evidence"


def test_a_failed_slice_gate_is_refused_and_lifted_only_by_a_decision(tmp_path: Path) -> None:
    held = tell(tmp_path / "held", corners="lost")
    for step in (build_packet, register_model):
        with pytest.raises(AdmissionError, match="Worse than the reference") as refused:
            step(REVISION, held.ports)
        assert refused.value.facts["gate"] == "protected_slices"
    waived = tell(tmp_path / "waived", corners="lost", decided=True)
    assert build_packet(REVISION, waived.ports).body["verdict"] == "released-with-waiver"
    entry = register_model(REVISION, waived.ports).body["entry"]
    told = json.loads((tmp_path / "waived" / "registry" / entry).read_bytes())
    assert told["waiver"]["scope"] == "belt cameras of site 2"
    assert told["waiver"]["expires_on"] == "2030-12-31"


def test_an_expired_waiver_registers_nothing(tmp_path: Path) -> None:
    story = tell(tmp_path, corners="lost", decided=True)
    build_packet(REVISION, story.ports)
    story.ledger.clock_seconds += 10 * 365 * 86_400
    with pytest.raises(RegistryError, match="expired on 2030-12-31"):
        register_model(REVISION, story.ports)


def test_a_failed_data_gate_is_refused(story: Story) -> None:
    build_packet(REVISION, story.ports)
    record_again(story, Stage.SNAPSHOT, snapshot_digest="0" * 64)
    with pytest.raises(AdmissionError) as refused:
        register_model(REVISION, story.ports)
    assert refused.value.facts["gate"] == "digest_equals_pin"


def test_a_packet_that_was_changed_is_refused(story: Story) -> None:
    build_packet(REVISION, story.ports)
    (story.ports.packets / REVISION / "model_card.md").write_text("better")
    with pytest.raises(AdmissionError, match=r"model_card\.md: was changed") as refused:
        register_model(REVISION, story.ports)
    assert refused.value.facts["gate"] == "packet_digests"
