"""A packet that was changed in any way is refused, by name and with the reason."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import parcel_assets
from parcel_assets.adapters.packet_folder import fetch_packet, require_verified, verify_packet
from parcel_assets.adapters.signer_ecdsa import EcdsaSigner
from parcel_assets.core.errors import PacketError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.packet_files import derived_files
from parcel_assets.steps.release import build_packet
from parcel_assets_tests.release_packets import (
    change_json,
    copy_of,
    published,
    read_ledger,
    said_in,
    sign_again,
    write_chain,
)
from parcel_assets_tests.release_story import REVISION, tell


@pytest.fixture
def packet(tmp_path: Path) -> Path:
    return copy_of(published()[1], tmp_path)


def faults_of(folder: Path) -> list[str]:
    return list(verify_packet(folder)["faults"])


def test_a_sound_packet_has_no_fault(packet: Path) -> None:
    found = verify_packet(packet)
    assert found["faults"] == []
    assert found["signature_ok"] is True
    assert found["verdict"] == "released"


# ---- twelve mutations --------------------------------------------------------------------------


def test_1_a_flipped_byte(packet: Path) -> None:
    place = packet / "model" / "model.safetensors"
    data = bytearray(place.read_bytes())
    data[100] ^= 1
    place.write_bytes(data)
    assert faults_of(packet) == [
        "model/model.safetensors: was changed: its digest is not the listed one"
    ]


def test_2_a_dropped_file(packet: Path) -> None:
    (packet / "search" / "curves.csv").unlink()
    assert faults_of(packet) == ["search/curves.csv: is listed and absent"]


def test_3_an_added_file(packet: Path) -> None:
    (packet / "model" / "setup.py").write_text("import os")
    assert faults_of(packet) == ["model/setup.py: is in the folder and not in the list"]


def test_4_a_renamed_file(packet: Path) -> None:
    (packet / "plan.json").rename(packet / "plan2.json")
    assert faults_of(packet) == [
        "plan.json: is listed and absent",
        "plan2.json: is in the folder and not in the list",
    ]


def reorder_the_ledger(folder: Path) -> None:
    place = folder / "ledger.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    lines[10], lines[11] = lines[11], lines[10]
    place.write_bytes(b"".join(lines))


def open_a_second_time(folder: Path) -> None:
    said = said_in(folder)
    place = next(n for n, one in enumerate(said) if one[0] == Kind.HOLDOUT_OPENED)
    write_chain(folder, [*said[: place + 1], said[place], *said[place + 1 :]])


def train_after_the_opening(folder: Path) -> None:
    said = said_in(folder)
    trained = next(one for one in said if one[0] == Kind.ATTEMPT_STARTED)
    late = (trained[0], {**trained[1], "attempt": "parcel-01-late"}, said[-1][2])
    write_chain(folder, [*said, late])


def swap_the_model(folder: Path) -> None:
    (folder / "model" / "model.safetensors").write_bytes(b"another network")


def swap_the_threshold(folder: Path) -> None:
    place = folder / "model" / "threshold.json"
    place.write_text(json.dumps({"threshold": "0.5", "review": "score >= threshold"}))


def swap_the_labels(folder: Path) -> None:
    change_json(
        folder / "evidence" / "grouped_shipment_split.json",
        lambda document: document["body"].update(holdout_commitment="0" * 64),
    )


def swap_the_plan(folder: Path) -> None:
    change_json(
        folder / "plan.json",
        lambda document: document["final"].update(target_cost_per_1000=9_000.0),
    )


def drop_a_trial(folder: Path) -> None:
    place = folder / "search" / "trials.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    place.write_bytes(b"".join(lines[:40] + lines[41:]))


def better_verdict(folder: Path) -> None:
    change_json(
        folder / "VERDICT.json", lambda document: document.update(verdict="released-with-waiver")
    )


def better_count(folder: Path) -> None:
    def cheat(document: dict[str, object]) -> None:
        page = document["first_page"]
        assert isinstance(page, dict)
        page["counts"]["trials"]["failed"]["value"] = 0

    change_json(folder / "VERDICT.json", cheat)


def forge_a_decision(folder: Path) -> None:
    (folder / "decision.json").write_text('{"outcome": "accept"}')


def spend_less(folder: Path) -> None:
    place = folder / "search" / "attempts.jsonl"
    place.write_bytes(
        place.read_bytes().replace(b'"charged_seconds":22.0', b'"charged_seconds":1.0')
    )


def cut_the_ledger(folder: Path) -> None:
    place = folder / "ledger.jsonl"
    place.write_bytes(b"".join(place.read_bytes().splitlines(keepends=True)[:-3]))


def better_score(folder: Path) -> None:
    place = folder / "selection" / "validation_scores.csv"
    lines = place.read_text().splitlines(keepends=True)
    cells = lines[1].split(",")
    cells[4] = "0.999"
    place.write_text("".join([lines[0], ",".join(cells), *lines[2:]]))


def other_pictures(folder: Path) -> None:
    (folder / "slices" / "worst_sheet.png").write_bytes(
        (folder / "data" / "contact_sheet.png").read_bytes()
    )


def rewrite_the_history(folder: Path) -> None:
    """Lower one stored cost and chain every event anew."""
    said = said_in(folder)
    place = next(n for n, one in enumerate(said) if one[0] == Kind.MILESTONE_REPORTED)
    kind, body, at = said[place]
    said[place] = (kind, {**body, "cost_per_1000": 1.0}, at)
    write_chain(folder, said)


def better_than_the_vault_said(folder: Path) -> None:
    """Let the vault have said FAIL, and the evidence PASS, all digests and pages made anew."""
    said = said_in(folder)
    place = next(n for n, one in enumerate(said) if one[0] == Kind.HOLDOUT_EVALUATED)
    kind, body, at = said[place]
    said[place] = (kind, {**body, "outcome": "FAIL"}, at)
    write_chain(folder, said)
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    for path, data in derived_files(files).items():
        (folder / path).write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (better_than_the_vault_said, "evidence/final_evaluation.json: has another outcome"),
        (reorder_the_ledger, "ledger.jsonl: the chain of events is broken: event 12"),
        (open_a_second_time, "ledger.jsonl: opens the holdout 2 times, expected exactly once"),
        (train_after_the_opening, "ledger.jsonl: has attempt_started"),
        (swap_the_model, "model/model.safetensors: is not the model for which the holdout was"),
        (swap_the_threshold, "model/threshold.json: is not what ledger, plan and evidence say"),
        (swap_the_labels, "evidence/grouped_shipment_split.json: is not the evidence that the"),
        (swap_the_plan, "plan.json: has digest"),
        (drop_a_trial, "search/trials.jsonl: holds 81 rows; the plan's budget is 82 slots"),
        (better_verdict, "VERDICT.json: `verdict` is not what the packet's evidence says"),
        (better_count, "VERDICT.json: `first_page` is not what the packet's evidence says"),
        (forge_a_decision, "decision.json: is in no ledger event"),
        (spend_less, "search/attempts.jsonl: is not what ledger, plan and evidence say"),
        (cut_the_ledger, "ledger.head: is not what ledger, plan and evidence say"),
        (better_score, "selection/validation_scores.csv: holds a `score` that the evidence does"),
        (other_pictures, "slices/worst_sheet.png: is not the picture that the evidence names"),
        (rewrite_the_history, "ledger.jsonl: does not fold to the frozen trial table"),
    ],
)
def test_5_to_12_and_more_even_with_the_list_signed_anew(
    packet: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(packet)
    assert any("was changed" in one or "not in the list" in one for one in faults_of(packet))
    sign_again(packet)
    found = verify_packet(packet)
    assert found["signature_ok"] is True
    assert any(one.startswith(reason) for one in found["faults"]), found["faults"]
    with pytest.raises(PacketError) as refused:
        require_verified(packet)
    assert refused.value.facts["file"] == found["fault_files"][0]


# ---- folders and lists that try to mislead -----------------------------------------------------


def test_a_symbolic_link_is_refused_even_if_it_leads_to_the_right_bytes(packet: Path) -> None:
    outside = packet.parent / "plan.json"
    shutil.move(packet / "plan.json", outside)
    (packet / "plan.json").symlink_to(outside)
    assert "plan.json: is a symbolic link" in faults_of(packet)


def test_an_empty_folder_is_refused(packet: Path) -> None:
    (packet / "notes").mkdir()
    assert faults_of(packet) == ["notes: is an empty folder that no list names"]


@pytest.mark.parametrize(
    "line", ["0" * 64 + "  ../secret", "0" * 64 + "  /etc/passwd", "no digest", "0" * 64 + "  a\\b"]
)
def test_a_list_may_name_plain_relative_paths_only(packet: Path, line: str) -> None:
    with (packet / "SHA256SUMS").open("a") as sums:
        sums.write(f"{line}\n")
    assert any("is no digest of a plain relative path" in one for one in faults_of(packet))


def test_a_list_signed_by_another_key_is_refused(packet: Path, tmp_path: Path) -> None:
    stranger = EcdsaSigner(tmp_path / "stranger")
    (packet / "SHA256SUMS.sig").write_bytes(stranger.sign((packet / "SHA256SUMS").read_bytes()))
    found = verify_packet(packet)
    assert found["signature_ok"] is False
    assert (
        found["signature_sentence"] == "The list of digests is not signed by the packet's own key."
    )


def test_a_consistent_packet_of_another_key_is_no_packet_of_ours(
    packet: Path, tmp_path: Path
) -> None:
    ours = published()[0].ports.signer.public_key()
    stranger = EcdsaSigner(tmp_path / "stranger")
    assert verify_packet(packet, None, ours)["signature_sentence"].startswith("Signed by the exp")
    assert verify_packet(packet, None, stranger.public_key())["signature_ok"] is False


def test_another_packet_than_the_expected_one_is_refused(packet: Path) -> None:
    assert verify_packet(packet, "0" * 64)["fault_files"] == ["SHA256SUMS"]


def test_a_folder_that_is_not_there_is_a_fault_and_not_a_crash(tmp_path: Path) -> None:
    assert verify_packet(tmp_path / "nothing")["fault_files"][0] == "SHA256SUMS"


def test_the_twelfth_packet_format_is_not_guessed_at(packet: Path) -> None:
    change_json(packet / "VERDICT.json", lambda document: document.update(format="parcel-packet/9"))
    sign_again(packet)
    (fault,) = faults_of(packet)
    assert fault.startswith("VERDICT.json: has format 'parcel-packet/9'")


# ---- fetching ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "file://", "memory://"])
def test_a_packet_is_fetched_from_a_path_or_any_fsspec_url(
    packet: Path, tmp_path: Path, prefix: str
) -> None:
    location = f"{prefix}{packet}"
    if prefix == "memory://":
        import fsspec  # type: ignore[import-untyped]  # ships no types

        fsspec.filesystem("memory").put(f"{packet}/", "/shelf/", recursive=True)
        location = "memory://shelf"
    fetched = fetch_packet(location, tmp_path / "here")
    assert fetched.folder == tmp_path / "here"
    assert fetched.verdict["verdict"] == "released"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "here"]


def test_a_damaged_packet_never_appears_at_the_target(packet: Path, tmp_path: Path) -> None:
    (packet / "model_card.md").write_text("better")
    with pytest.raises(PacketError, match=r"model_card\.md: was changed") as refused:
        fetch_packet(packet, tmp_path / "here")
    assert refused.value.facts["file"] == "model_card.md"
    assert not (tmp_path / "here").exists()


def test_fetching_again_keeps_what_is_there_and_refuses_what_was_changed_there(
    packet: Path, tmp_path: Path
) -> None:
    first = fetch_packet(packet, tmp_path / "here")
    assert fetch_packet(packet, tmp_path / "here").digest == first.digest
    (tmp_path / "here" / "plan.json").write_text("{}")
    with pytest.raises(PacketError, match=r"plan\.json: was changed"):
        fetch_packet(packet, tmp_path / "here")


def test_a_pipe_in_a_packet_is_refused_and_not_waited_for(packet: Path, tmp_path: Path) -> None:
    os.mkfifo(packet / "notes.txt")
    assert faults_of(packet) == ["notes.txt: is no plain file"]
    with pytest.raises(PacketError, match="cannot be copied"):
        fetch_packet(packet, tmp_path / "here")


def test_only_a_released_packet_is_usable(tmp_path: Path) -> None:
    story = tell(tmp_path / "story", outcome="FAIL")
    build_packet(REVISION, story.ports)
    rejected = story.ports.packets / REVISION
    assert fetch_packet(rejected, tmp_path / "read").verdict["usable"] is False
    with pytest.raises(PacketError, match="verdict rejected:performance"):
        fetch_packet(rejected, tmp_path / "serve", usable_only=True)


def test_an_absent_packet_is_said_in_words(tmp_path: Path) -> None:
    for location in (str(tmp_path / "no"), "memory://nowhere"):
        with pytest.raises(PacketError, match="found nothing there"):
            fetch_packet(location, tmp_path / "here")


def test_the_public_names_load_neither_dagster_nor_torch() -> None:
    code = (
        "import sys, parcel_assets as p; p.fetch_packet, p.verify_packet; "
        "p.parcel_search_disposition; "
        "sys.exit(any(name in sys.modules for name in ('dagster', 'torch', 'matplotlib')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, env=dict(os.environ))
    assert ended.returncode == 0
    assert parcel_assets.__version__


# ---- without any tool of ours ------------------------------------------------------------------


def test_the_readme_s_own_commands_verify_the_packet(packet: Path) -> None:
    readme = (packet / "README.md").read_text()
    script = readme.partition("```bash\n")[2].partition("```")[0]
    ended = subprocess.run(
        ["bash", "-c", script], cwd=packet, capture_output=True, text=True, check=False
    )
    assert "Verified OK" in ended.stdout
    assert "every listed file is as signed" in ended.stdout
    fingerprint = json.loads((packet / "VERDICT.json").read_bytes())["signed_by"]
    assert ended.stdout.splitlines()[-1].split()[0] == fingerprint
    assert fingerprint in readme
    assert len(ended.stdout.splitlines()) == 3  # nothing unlisted was found
    (packet / "extra.txt").write_text("x")
    (packet / "plan.json").write_text("{}")
    spoiled = subprocess.run(
        ["bash", "-c", script], cwd=packet, capture_output=True, text=True, check=False
    )
    assert "extra.txt" in spoiled.stdout
    assert "every listed file" not in spoiled.stdout


def test_nothing_in_a_packet_names_a_place_on_this_machine(packet: Path) -> None:
    home = str(published()[1].parent.parent)
    for path in packet.rglob("*"):
        if path.is_file():
            assert home.encode() not in path.read_bytes(), path
    assert len(read_ledger(packet)) > 500
