"""A packet's timestamps: covered by its list, bound to its ledger, checked by openssl alone."""

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parcel_assets.adapters.packet_folder import verify_packet
from parcel_assets.cli import app
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import SettingError
from parcel_assets.core.packet import evidence_file
from parcel_assets.core.stage import Stage
from parcel_assets.steps.release import build_packet
from parcel_assets_tests.release_packets import (
    aside,
    change_json,
    copy_of,
    published,
    read_ledger,
    sign_again,
)
from parcel_assets_tests.release_story import REVISION, tell
from parcel_assets_tests.timestamp_authority import signer

REASON = "not L3, since the label key was made where the search ran"
SPLIT, CHOICE = Path("timestamps/split.tsr"), Path("timestamps/choice.tsr")


@functools.cache
def stamped(*names: str) -> Path:
    folder = aside()
    build_packet(REVISION, tell(folder, stamped=names, custody=("L1", REASON)).ports)
    return folder / "packets" / REVISION


@pytest.fixture
def packet(tmp_path: Path) -> Path:
    return copy_of(stamped("split", "choice"), tmp_path)


def test_its_first_page_says_l2_why_and_when(packet: Path) -> None:
    verdict = json.loads((packet / "VERDICT.json").read_bytes())
    assert verdict["evidence_level"] == "L2"
    means = verdict["evidence_level_means"]
    assert REASON in means
    assert "split timestamped 2026-11-18T" in means
    assert "choice timestamped 2026-11-18T" in means
    assert verdict["timestamps"]["choice"]["authority"] == "CN=An authority"
    assert "Evidence level L2: a consistent record" in (packet / "report.html").read_text()


def test_it_verifies_and_says_whether_a_trusted_root_signed(packet: Path) -> None:
    found = verify_packet(packet)
    assert found["faults"] == []
    assert all("not checked against a root" in one for one in found["timestamp_sentences"])
    trusted = verify_packet(packet, timestamp_roots=signer().root_pem)
    assert trusted["faults"] == []
    assert all("root that you trust" in one for one in trusted["timestamp_sentences"])


def test_the_command_line_fails_under_another_root(packet: Path, tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.write_bytes(signer().root_pem)
    words = ["packet", "verify", str(packet), "--timestamp-root", str(root)]
    good = CliRunner().invoke(app, words)
    assert good.exit_code == 0
    assert "split: stamped by CN=An authority" in " ".join(good.stdout.split())
    root.write_bytes(signer("A stranger").root_pem)
    bad = CliRunner().invoke(app, words)
    assert bad.exit_code == 1
    assert "does not verify" in " ".join(bad.stdout.split())


def test_a_root_file_without_a_certificate_is_a_wrong_setting(packet: Path) -> None:
    with pytest.raises(SettingError, match="no certificate"):
        verify_packet(packet, timestamp_roots=b"not a certificate")


def test_the_readme_s_own_commands_verify_it_with_openssl(packet: Path) -> None:
    readme = (packet / "README.md").read_text()
    script = readme.partition("## Check its timestamps")[2]
    script = script.partition("```bash\n")[2].partition("```")[0]
    (packet.parent / "root.pem").write_bytes(signer().root_pem)

    def run() -> str:
        told = subprocess.run(
            ["bash", "-c", script], cwd=packet, capture_output=True, text=True, check=False
        )
        return told.stdout

    said = run()
    assert said.count("Verification: OK") == 2
    assert said.count("Time stamp: Nov 18") == 2
    assert verify_packet(packet)["faults"] == []  # nothing that it says to do spoils the folder
    (packet / "timestamps" / "split.json").write_bytes(b"another event")
    assert run().count("Verification: OK") == 1
    (packet.parent / "root.pem").write_bytes(signer("A stranger").root_pem)
    assert run().count("Verification: OK") == 0


def test_the_stamped_event_is_beside_its_token_under_its_digest_in_the_ledger(packet: Path) -> None:
    told = json.loads((packet / "VERDICT.json").read_bytes())["timestamps"]
    for name, one in told.items():
        content = (packet / "timestamps" / f"{name}.json").read_bytes()
        event = read_ledger(packet)[one["event"] - 1]
        assert digest_bytes(content) == event.digest == one["digest"]


def remove(packet: Path) -> None:
    (packet / SPLIT).unlink()


def swap(packet: Path) -> None:
    split, choice = (packet / SPLIT).read_bytes(), (packet / CHOICE).read_bytes()
    (packet / SPLIT).write_bytes(choice)
    (packet / CHOICE).write_bytes(split)


def forge(packet: Path) -> None:
    digest = bytes.fromhex(digest_bytes((packet / "timestamps" / "split.json").read_bytes()))
    (packet / SPLIT).write_bytes(signer("A stranger").token(digest, at_seconds=1_795_000_002))


def add(packet: Path) -> None:
    (packet / "timestamps" / "more.tsr").write_bytes((packet / SPLIT).read_bytes())


def other_event(packet: Path) -> None:
    (packet / "timestamps" / "choice.json").write_bytes(b"[]")


def lesser(packet: Path) -> None:
    path = packet / evidence_file(Stage.FINAL)
    change_json(path, lambda one: one["body"].update(evidence_level="L1"))


MUTATIONS: dict[Callable[[Path], None], str] = {
    remove: "timestamps/split.tsr: is absent",
    swap: "timestamps/split.tsr: is not the token that the ledger names",
    forge: "timestamps/split.tsr: is not the token that the ledger names",
    add: "timestamps/more.tsr: is a token that no event which counts names",
    other_event: "timestamps/choice.json: is not what ledger, plan and evidence say",
    lesser: "claims level L1; key and timestamps allow L2",
}


@pytest.mark.parametrize("spoil", MUTATIONS, ids=lambda one: one.__name__)
def test_a_spoiled_timestamp_is_found_even_with_the_list_signed_anew(
    packet: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(packet)
    sign_again(packet)
    assert any(MUTATIONS[spoil] in one for one in verify_packet(packet)["faults"])


class TestHalf:
    def test_one_of_two_is_l1_and_the_missing_one_is_named(self) -> None:
        folder, missing = stamped("choice"), "split"
        assert verify_packet(folder)["faults"] == []
        verdict = json.loads((folder / "VERDICT.json").read_bytes())
        assert verdict["evidence_level"] == "L1"
        assert f"{missing} not timestamped" in verdict["evidence_level_means"]
        assert f"- {missing}: not timestamped" in (folder / "README.md").read_text()
        faults = verify_packet(folder, timestamp_roots=signer().root_pem)["faults"]
        assert faults == [f"timestamps/{missing}.tsr: is absent: the {missing} is not timestamped"]


class TestWithout:
    def test_a_new_packet_says_in_words_that_it_is_not_timestamped(self) -> None:
        folder = stamped()
        assert verify_packet(folder)["faults"] == []
        assert "This search is not timestamped" in (folder / "README.md").read_text()
        verdict = json.loads((folder / "VERDICT.json").read_bytes())
        assert verdict["evidence_level_means"].endswith(f"{REASON}; not timestamped")

    def test_one_that_claims_l2_is_refused(self, tmp_path: Path) -> None:
        folder = copy_of(stamped(), tmp_path)
        path = folder / evidence_file(Stage.FINAL)
        change_json(path, lambda one: one["body"].update(evidence_level="L2"))
        sign_again(folder)
        words = "claims level L2; key and timestamps allow L1"
        assert any(words in one for one in verify_packet(folder)["faults"])

    def test_packets_of_earlier_releases_still_verify_and_say_the_same(self) -> None:
        folder = published()[1]
        assert verify_packet(folder)["faults"] == []
        verdict = json.loads((folder / "VERDICT.json").read_bytes())
        assert "timestamps" not in verdict
        assert verdict["evidence_level_means"] == "a consistent record of one opening"
