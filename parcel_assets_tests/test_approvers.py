"""Where a plan lists approvers' keys, a decision counts only with the signature of one of them."""

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from parcel_assets.adapters.approval_keys import sign_with, signature_holds
from parcel_assets.core.approval import signed_bytes
from parcel_assets.core.errors import AdmissionError, DecisionError, PlanError, SettingError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan import Plan
from parcel_assets.core.trial import Decision
from parcel_assets.steps.admission import leased, load_chain
from parcel_assets.steps.decision import Answer, bytes_to_sign, record_decision
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.release import build_packet
from parcel_assets.steps.selection import rerun_selected
from parcel_assets_tests.core.plans import plan as small_plan
from parcel_assets_tests.held import (
    ANSWER,
    RefusedError,
    answer_of,
    at_the_command_line,
    command,
    flags,
    held_desk,
    in_the_launchpad,
    packet_of,
    report_of,
)
from parcel_assets_tests.steps.desk import REVISION, Desk, desk_plan

KINDS = ("Ed25519", "ECDSA P-256")
ADA, ROLE = ANSWER["name"], ANSWER["role"]


def key_pair(folder: Path, kind: str = "Ed25519", name: str = "ada") -> tuple[Path, str]:
    """Write a private key; return its file and the public key in PEM."""
    key: Any = (
        ed25519.Ed25519PrivateKey.generate()
        if kind == "Ed25519"
        else ec.generate_private_key(ec.SECP256R1())
    )
    place = folder / f"{name}.private.pem"
    place.touch(0o600)
    place.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return place, public.decode()


def base64_of(pem: str) -> str:
    return "".join(line for line in pem.splitlines() if "-----" not in line)


def listing(public: str, name: str = ADA, role: str = ROLE) -> Plan:
    return desk_plan(approvers={name: {"role": role, "public_key": public}})


@pytest.fixture
def key(tmp_path: Path) -> tuple[Path, str]:
    return key_pair(tmp_path)


@pytest.fixture
def desk(tmp_path: Path, key: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    return held_desk(tmp_path, monkeypatch, plan=listing(key[1]))


def signature(desk: Desk, private: Path, **changes: str) -> str:
    answer = Answer(**answer_of(changes.pop("outcome", "accept"), **changes))
    return base64.b64encode(
        sign_with(private, bytes_to_sign(REVISION, desk.ports, answer))
    ).decode()


class TestPlan:
    def test_without_approvers_a_plan_keeps_its_digest(self) -> None:
        assert "approvers" not in small_plan().document()

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_key_may_be_pem_or_its_base64(self, tmp_path: Path, kind: str) -> None:
        _, public = key_pair(tmp_path, kind)
        assert listing(public).digest != listing(base64_of(public)).digest
        assert "approvers" in listing(public).document()

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            ("no key", "neither PEM nor base64"),
            (base64.b64encode(b"something else").decode(), "is no Ed25519 or ECDSA P-256"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA", "spoilt now"),
        ],
    )
    def test_what_is_no_public_key_is_refused_when_the_plan_is_read(
        self, key: str, words: str
    ) -> None:
        with pytest.raises(PlanError, match=words) as refused:
            listing(key)
        assert refused.value.facts["faults"][0]["path"] == f"approvers.{ADA}"


@pytest.mark.parametrize("kind", KINDS)
def test_openssl_makes_the_key_and_reads_the_signature(tmp_path: Path, kind: str) -> None:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    how = ["ed25519"] if kind == "Ed25519" else ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made = ["openssl", "genpkey", "-algorithm", *how, "-out", str(private)]
    subprocess.run(made, check=True, capture_output=True)
    subprocess.run(
        ["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)], check=True
    )
    data, signed = tmp_path / "data", tmp_path / "signature"
    data.write_bytes(b"what is decided")
    signed.write_bytes(sign_with(private, b"what is decided"))
    assert signature_holds(public.read_text(), b"what is decided", signed.read_bytes())
    assert not signature_holds(public.read_text(), b"something else", signed.read_bytes())
    check = ["-verify", "-pubin", "-inkey", str(public), "-sigfile", str(signed)]
    check += ["-rawin", "-in", str(data)]
    subprocess.run(["openssl", "pkeyutl", *check], check=True, capture_output=True)


def test_another_kind_of_key_signs_nothing(tmp_path: Path) -> None:
    place = tmp_path / "p384.pem"
    key = ec.generate_private_key(ec.SECP384R1())
    place.touch(0o600)
    place.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SettingError, match="Ed25519 or ECDSA P-256"):
        sign_with(place, b"data")
    (tmp_path / "none.pem").touch(0o600)
    (tmp_path / "none.pem").write_text("no key")
    with pytest.raises(SettingError, match="no unencrypted private key"):
        sign_with(tmp_path / "none.pem", b"data")


def test_a_public_key_is_called_one(tmp_path: Path) -> None:
    place = tmp_path / "ada.public.pem"
    place.write_text(key_pair(tmp_path)[1])
    with pytest.raises(SettingError, match="a public key, with which nobody can sign"):
        sign_with(place, b"data")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_signs_nothing(tmp_path: Path, mode: int) -> None:
    private, _ = key_pair(tmp_path)
    private.chmod(mode)
    with pytest.raises(SettingError, match=f"others may read .mode {mode:o}") as refused:
        sign_with(private, b"data")
    assert "chmod 600" in refused.value.remedy
    private.chmod(0o600)
    assert sign_with(private, b"data")


class TestSigned:
    def test_on_the_command_line_the_key_signs_and_the_packet_says_so(
        self, desk: Desk, key: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decide = at_the_command_line(desk, monkeypatch)
        with pytest.raises(RefusedError, match="without a signature"):
            decide("accept")
        words = command("decide", REVISION, *flags(answer_of("accept")), "--key", str(key[0]))
        assert "signed with the key that the plan lists" in words
        for step in (evaluate_final, build_packet):
            step(REVISION, desk.ports)
        assert packet_of(desk)["verdict"] == "released-with-waiver"
        assert "signed with the key that the plan lists" in report_of(desk)

    def test_in_the_launchpad_the_form_takes_what_sign_only_printed(
        self,
        desk: Desk,
        key: tuple[Path, str],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        at_the_command_line(desk, monkeypatch)
        words = ["decide", REVISION, *flags(answer_of("close")), "--key", str(key[0])]
        printed = command(*words, "--sign-only").strip()
        assert not desk.events(Kind.DECISION_RECORDED)
        decide = in_the_launchpad(desk, tmp_path)
        with pytest.raises(RefusedError, match="without a signature"):
            decide("close")
        decide("close", signature=printed)
        assert packet_of(desk)["verdict"] == "closed"
        assert not desk.ports.verify_packet(desk.ports.packets / REVISION, None, None)["faults"]

    def test_pending_names_who_may_decide(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_the_command_line(desk, monkeypatch)
        output = command("decide", "--pending")
        assert f"who may decide: {ADA} ({ROLE})" in output
        assert "--key PRIVATE.pem" in output


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"name": "Eve"}, "'Eve', whom the plan does not list"),
            ({"role": "engineer"}, "the role 'quality owner', as the plan lists Ada"),
            ({"signature": ""}, "without a signature"),
            ({"signature": "no base64!"}, "a signature that is no base64"),
            ({"scope": "every belt"}, "a signature that does not hold"),
            ({"expires_on": "2031-01-01"}, "a signature that does not hold"),
            ({"reason": "Because I say so, and more"}, "a signature that does not hold"),
        ],
    )
    def test_who_is_not_listed_and_what_was_not_signed(
        self, desk: Desk, key: tuple[Path, str], changes: dict[str, str], words: str
    ) -> None:
        given = {**answer_of("accept"), "signature": signature(desk, key[0]), **changes}
        with pytest.raises(DecisionError, match=words):
            record_decision(REVISION, desk.ports, **given)
        assert not desk.events(Kind.DECISION_RECORDED)

    def test_another_key(self, desk: Desk, tmp_path: Path) -> None:
        other, _ = key_pair(tmp_path, name="eve")
        with pytest.raises(DecisionError, match="a signature that does not hold"):
            record_decision(
                REVISION, desk.ports, **answer_of("accept"), signature=signature(desk, other)
            )

    @pytest.mark.parametrize("further", [[], ["--sign-only"]])
    def test_another_key_on_the_command_line_is_called_that(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: list[str]
    ) -> None:
        at_the_command_line(desk, monkeypatch)
        other, _ = key_pair(tmp_path, name="eve")
        words = ["decide", REVISION, *flags(answer_of("close")), "--key", str(other), *further]
        with pytest.raises(RefusedError) as refused:
            command(*words)
        told = " ".join(str(refused.value).split())
        assert f"another key than the plan lists for {ADA}" in told
        assert not desk.events(Kind.DECISION_RECORDED)

    def test_a_signature_is_no_use_for_another_outcome_or_a_later_report(
        self, desk: Desk, key: tuple[Path, str]
    ) -> None:
        accept, replace = (signature(desk, key[0], outcome=one) for one in ("accept", "replace"))
        with pytest.raises(DecisionError, match="does not hold"):
            record_decision(REVISION, desk.ports, **answer_of("close"), signature=accept)
        record_decision(REVISION, desk.ports, **answer_of("replace"), signature=replace)
        rerun_selected(REVISION, desk.ports)
        event = desk.events(Kind.DECISION_RECORDED)[0]
        replayed = Decision.model_validate(dict(event.body)).model_copy(
            update={"slice_evidence": "0" * 64}
        )
        data = signed_bytes(REVISION, desk.plan.digest, replayed, after="")
        assert not signature_holds(key[1], data, base64.b64decode(replayed.signature))
        decision = Decision.model_validate(dict(event.body))
        other = signed_bytes("another", desk.plan.digest, decision, after="")
        assert not signature_holds(key[1], other, base64.b64decode(replayed.signature))

    def test_an_older_acceptance_is_not_brought_back_by_its_signature(
        self, desk: Desk, key: tuple[Path, str]
    ) -> None:
        wide = answer_of("accept", scope="all belts")
        signed = signature(desk, key[0], scope="all belts")
        record_decision(REVISION, desk.ports, **wide, signature=signed)
        narrow = signature(desk, key[0], scope="belt 9")
        record_decision(REVISION, desk.ports, **answer_of("accept"), signature=narrow)
        with pytest.raises(DecisionError, match="does not hold"):
            record_decision(REVISION, desk.ports, **wide, signature=signed)
        # nor by whoever writes to the ledger
        first = desk.events(Kind.DECISION_RECORDED)[0]
        with leased(desk.ports, REVISION, "an insider") as lease:
            desk.ports.ledger.append(lease, [(Kind.DECISION_RECORDED, dict(first.body))])
        assert not load_chain(REVISION, desk.ports).accepted


@pytest.mark.parametrize("outcome", ["accept", "replace", "close"])
def test_what_somebody_wrote_into_the_ledger_without_a_key_counts_for_nothing(
    desk: Desk, key: tuple[Path, str], outcome: str
) -> None:
    seen = load_chain(REVISION, desk.ports).digests["slice_report"]  # type: ignore[index]
    forged = Decision(
        **{"scope": "", "expires_on": ""} | answer_of(outcome),
        slice_evidence=seen,
        numbers_seen={"slices": []},
        signature=signature(desk, key[0], reason="something else altogether"),
    )
    with leased(desk.ports, REVISION, "an insider") as lease:
        desk.ports.ledger.append(lease, [(Kind.DECISION_RECORDED, forged.document())])
    assert load_chain(REVISION, desk.ports).disposition() == "hold:slice-quality"
    step = {"accept": evaluate_final, "replace": rerun_selected, "close": build_packet}[outcome]
    with pytest.raises(AdmissionError, match="does not count: a signature that does not hold"):
        step(REVISION, desk.ports)
    assert not desk.events(Kind.HOLDOUT_OPENED)


def test_a_packet_whose_decision_nobody_signed_does_not_verify(
    desk: Desk, key: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_decision(
        REVISION,
        desk.ports,
        **answer_of("close"),
        signature=signature(desk, key[0], outcome="close"),
    )
    build_packet(REVISION, desk.ports)
    folder = desk.ports.packets / REVISION
    assert not desk.ports.verify_packet(folder, None, None)["faults"]
    monkeypatch.setattr(
        "parcel_assets.adapters.packet_folder.signature_holds", lambda *_given: False
    )
    (fault,) = desk.ports.verify_packet(folder, None, None)["faults"]
    assert fault.startswith("ledger.jsonl: has a bad decision")
    assert "does not hold" in fault


@pytest.mark.parametrize("text", [" quality owner ", "  ", "quality\u202eowner"])
def test_a_role_that_nobody_can_type_is_refused_when_the_plan_is_read(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(PlanError, match=r"approvers\.Ada Example\.role"):
        listing(key_pair(tmp_path)[1], role=text)


def test_a_mistyped_curve_point_is_refused_when_the_plan_is_read(tmp_path: Path) -> None:
    der = bytearray(base64.b64decode(base64_of(key_pair(tmp_path, "ECDSA P-256")[1])))
    der[-1] ^= 1
    with pytest.raises(PlanError, match="no point of P-256"):
        listing(base64.b64encode(der).decode())


def test_without_approvers_no_page_says_that_a_key_vouches_for_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = held_desk(tmp_path, monkeypatch)
    decide = at_the_command_line(desk, monkeypatch)
    with pytest.raises(RefusedError, match="lists no approvers"):
        decide("accept", key=str(key_pair(tmp_path)[0]))
    assert not desk.events(Kind.DECISION_RECORDED)
