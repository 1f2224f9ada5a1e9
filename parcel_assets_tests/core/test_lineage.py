"""What files say about themselves, and which attempts a clash of lineages puts in doubt."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from parcel_assets.core.codec import canonical_json
from parcel_assets.core.ledger import Kind
from parcel_assets.core.lineage import (
    FoundFile,
    PrefixContent,
    is_below_prefix,
    lineage_of,
    owner_of,
    read_found_file,
    training_digest,
)
from parcel_assets.core.lineage_clash import chain_clash, checkpoint_clash, prefix_clash
from parcel_assets.core.trial import CheckpointSaved
from parcel_assets_tests.core.search_story import Story, story_plan

A, B = "parcel-01/1", "parcel-02/1"
CONFIGURATION = {"width": 8}


def training(subject: str) -> str:
    return training_digest(CONFIGURATION, int(subject[-2:]))


@pytest.fixture
def story() -> Story:
    """Two trials at work, both past milestone 2 and their checkpoints of step 3."""
    story = Story()
    story.tell(Kind.WORKER_ADMITTED, worker_id="w", identity="i")
    story.batch(1, [1, 2])
    for number, attempt in enumerate((A, B), 1):
        story.start(number, training=training(f"parcel-{number:02d}"))
        story.report(attempt, 2, 300.0, scores=f"s{number}", file="scores-2.f4")
        story.checkpoint(attempt, 3, f"{attempt}@3", payload=f"{attempt} weights")
    return story


def subject_of(attempt: str) -> str:
    return attempt.rpartition("/")[0]


def lineage(attempt: str, step: int, parent: str | None = None) -> dict[str, str]:
    return lineage_of(
        revision="spring",
        plan_digest=story_plan().digest,
        identity_digest="i",
        subject=subject_of(attempt),
        attempt=attempt,
        configuration=CONFIGURATION,
        seed=int(subject_of(attempt)[-2:]),
        step=step,
        parent_checkpoint=parent,
    )


def saved(
    attempt: str, step: int, digest: str, parent: str | None = None, **changes: str
) -> CheckpointSaved:
    fields = {"file": f"checkpoint-{step}.safetensors", "payload": f"{digest} weights"} | changes
    return CheckpointSaved(
        attempt=attempt,
        subject=subject_of(attempt),
        step=step,
        checkpoint=digest,
        parent_checkpoint=parent,
        **fields,
    )


def content(attempt: str, **files: FoundFile) -> PrefixContent:
    """Return what an honest worker left below its prefix, with files added or put in its place."""
    own = {
        "scores-2.f4": FoundFile(f"s{subject_of(attempt)[-1]}"),
        "checkpoint-3.safetensors": FoundFile(
            f"{attempt}@3", lineage(attempt, 3), f"{attempt} weights"
        ),
    }
    named = {f"{name.replace('_', '-')}.safetensors": one for name, one in files.items()}
    return PrefixContent(owner_of("spring", attempt, subject_of(attempt)), own | named)


def in_doubt(story: Story, attempt: str, found: PrefixContent) -> set[str]:
    return set(prefix_clash(story.state, story.state.attempts[attempt], found))


def reported(story: Story, one: CheckpointSaved, header: dict[str, str] | None) -> set[str]:
    return set(checkpoint_clash(story.state, story.state.attempts[one.attempt], one, header))


def chained(story: Story, attempt: str) -> set[str]:
    return set(chain_clash(story.state, story.state.attempts[attempt]))


# ---- honest attempts ----------------------------------------------------------------------------


def test_a_chain_of_own_checkpoints_is_clean(story: Story) -> None:
    story.report(A, 5, 200.0, scores="s5", file="scores-5.f4")
    one, header = saved(A, 6, "c6", f"{A}@3"), lineage(A, 6, f"{A}@3")
    assert reported(story, one, header) == set()
    story.checkpoint(A, 6, "c6", f"{A}@3", payload="c6 weights")
    files = content(A, checkpoint_6=FoundFile("c6", header, "c6 weights"))
    files = dataclasses.replace(files, files={**files.files, "scores-5.f4": FoundFile("s5")})
    assert in_doubt(story, A, files) == set()
    assert chained(story, A) == set()
    assert story.state.lineage_faults == ()


def test_what_a_lost_worker_wrote_and_could_not_report_is_harmless(story: Story) -> None:
    left = content(
        A,
        checkpoint_4=FoundFile("c4", lineage(A, 4, f"{A}@3"), "c4 weights"),
        torn=FoundFile("x"),
        model=FoundFile("m", None, "last weights"),
    )
    assert in_doubt(story, A, left) == set()


def test_a_coordinator_that_died_before_the_folder_was_made_leaves_no_doubt(story: Story) -> None:
    other = story.start(1, 2)
    assert in_doubt(story, other, PrefixContent(None)) == set()
    assert in_doubt(story, A, PrefixContent(None)) == {A}


def test_a_rerun_ends_in_its_trials_weights_and_no_other_in_anybodys(story: Story) -> None:
    own = story.start("rerun/parcel-01/own", purpose="rerun", training=training("parcel-01"))
    seed = story.start("rerun/parcel-01/101", purpose="rerun", training=training("parcel-99"))
    for attempt in (own, seed):
        story.checkpoint(attempt, 3, f"{attempt}@3", payload=f"{A} weights")
    assert chained(story, own) == {own, seed}, "equal to its trial, but the other seed's is not"
    assert chained(story, seed) == {A, own, seed}


# ---- what a worker reports ----------------------------------------------------------------------


def test_resuming_the_checkpoint_of_another_trial_puts_both_in_doubt(story: Story) -> None:
    # the signature incident: the second worker resumes the first one's checkpoint
    one = saved(B, 4, "c4", f"{A}@3")
    assert reported(story, one, lineage(B, 4, f"{A}@3")) == {A, B}


def test_a_forged_trial_with_a_wrong_parent_is_found_by_the_parent(story: Story) -> None:
    hidden = saved(B, 4, "c4", f"{B}@3")
    assert reported(story, hidden, lineage(B, 4, f"{A}@3")) == {A, B}
    assert reported(story, hidden, lineage(B, 4, "9" * 64)) == {B}
    assert reported(story, saved(B, 4, "c4", "9" * 64), lineage(B, 4, f"{B}@3")) == {B}


def test_a_checkpoint_that_is_not_there_still_puts_the_parent_it_told_in_doubt(
    story: Story,
) -> None:
    assert reported(story, saved(A, 6, "c6", f"{B}@3"), None) == {A, B}
    assert reported(story, saved(A, 6, "c6", f"{A}@3"), None) == {A}


def test_a_checkpoint_that_names_another_attempt_puts_both_in_doubt(story: Story) -> None:
    assert reported(story, saved(B, 4, "c4", f"{B}@3"), lineage(A, 4, f"{B}@3")) == {A, B}


def test_anothers_weights_under_a_header_of_ones_own_put_both_in_doubt(story: Story) -> None:
    copied = saved(B, 4, "c4", f"{B}@3", payload=f"{A} weights")
    assert reported(story, copied, lineage(B, 4, f"{B}@3")) == {A, B}
    story.checkpoint(B, 4, "c4", f"{B}@3", payload=f"{A} weights")
    assert chained(story, A) == chained(story, B) == {A, B}


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": "autumn"},
        {"plan": "9" * 64},
        {"identity": "another worker's"},
        {"seed": "7"},
        {"configuration": "9" * 64},
        {"step": "3"},
        {"step": "four"},
    ],
    ids=str,
)
def test_each_field_of_a_header_must_be_the_attempts_own(
    story: Story, changes: dict[str, str]
) -> None:
    one, right = saved(A, 4, "c4", f"{A}@3"), lineage(A, 4, f"{A}@3")
    assert reported(story, one, right) == set()
    assert reported(story, one, right | changes) == {A}
    assert in_doubt(story, A, content(A, checkpoint_4=FoundFile("c4", right | changes))) == {A}


def test_a_checkpoint_beyond_what_was_reported_is_in_doubt(story: Story) -> None:
    assert reported(story, saved(A, 6, "c6", f"{A}@3"), lineage(A, 6, f"{A}@3")) == {A}
    found = content(A, checkpoint_6=FoundFile("c6", lineage(A, 6, f"{A}@3"), "w"))
    assert in_doubt(story, A, found) == {A}
    for step in (5, 10):
        story.report(A, step, 200.0)
    assert reported(story, saved(A, 11, "c11", f"{A}@3"), lineage(A, 11, f"{A}@3")) == {A}


def test_a_checkpoint_older_than_its_attempt_is_in_doubt(story: Story) -> None:
    story.end(A, "expired", step=3)
    second = story.start(1, 2, resume=(3, f"{A}@3"), training=training("parcel-01"))
    assert reported(story, saved(second, 4, "c4", f"{A}@3"), lineage(second, 4, f"{A}@3")) == set()
    for step in (2, 3):
        old = saved(second, step, f"c{step}", f"{A}@3")
        assert reported(story, old, lineage(second, step, f"{A}@3")) == {A, second}


def test_a_file_outside_the_prefix_is_in_doubt(story: Story) -> None:
    outside = saved(A, 4, "c4", f"{A}@3", file="../2/checkpoint-4.safetensors")
    assert reported(story, outside, lineage(A, 4, f"{A}@3")) == {A}


# ---- what lies below a prefix -------------------------------------------------------------------


def foreign_header(_story: Story) -> PrefixContent:
    return content(B, checkpoint_9=FoundFile("x", lineage(A, 9)))


def anothers_file_unnamed(_story: Story) -> PrefixContent:
    files = content(B).files
    return PrefixContent(
        owner_of("spring", B, "parcel-02"), {**files, "notes": FoundFile(f"{A}@3")}
    )


def anothers_weights(_story: Story) -> PrefixContent:
    own = lineage(B, 4, f"{B}@3")
    return content(B, checkpoint_4=FoundFile("x", own, f"{A} weights"))


def anothers_parent(_story: Story) -> PrefixContent:
    return content(B, checkpoint_4=FoundFile("x", lineage(B, 4, f"{A}@3"), "w"))


def own_replaced_by_anothers(_story: Story) -> PrefixContent:
    return content(B, checkpoint_3=FoundFile(f"{A}@3", lineage(A, 3), f"{A} weights"))


def link_to_another(_story: Story) -> PrefixContent:
    return content(B, checkpoint_4=FoundFile("", link_to="spring/parcel-01/1/checkpoint-3"))


def marker_of_another(_story: Story) -> PrefixContent:
    return PrefixContent(owner_of("spring", A, "parcel-01"), content(B).files)


def marker_gone_and_anothers_file(_story: Story) -> PrefixContent:
    return PrefixContent(None, own_replaced_by_anothers(_story).files)


BOTH = [
    foreign_header,
    anothers_file_unnamed,
    anothers_weights,
    anothers_parent,
    own_replaced_by_anothers,
    link_to_another,
    marker_of_another,
    marker_gone_and_anothers_file,
]


@pytest.mark.parametrize("found", BOTH, ids=lambda one: one.__name__)
def test_what_came_from_another_attempt_puts_both_in_doubt(
    story: Story, found: Callable[[Story], PrefixContent]
) -> None:
    assert in_doubt(story, B, found(story)) == {A, B}


def without(name: str) -> PrefixContent:
    whole = content(A)
    return dataclasses.replace(
        whole, files={key: one for key, one in whole.files.items() if key != name}
    )


def with_file(name: str, file: FoundFile) -> PrefixContent:
    whole = content(A)
    return dataclasses.replace(whole, files={**whole.files, name: file})


CHECKPOINT = "checkpoint-3.safetensors"
CHANGED = FoundFile("changed", lineage(A, 3), "changed weights")
ALONE = {
    "checkpoint changed": with_file(CHECKPOINT, CHANGED),
    "checkpoint torn": with_file(CHECKPOINT, FoundFile(f"{A}@3")),
    "checkpoint removed": without(CHECKPOINT),
    "scores changed": with_file("scores-2.f4", FoundFile("other")),
    "scores removed": without("scores-2.f4"),
    "a link to elsewhere": with_file("notes", FoundFile("", link_to="a link to elsewhere")),
    "marker gone": dataclasses.replace(content(A), owner=None),
    "marker unreadable": dataclasses.replace(content(A), owner={}),
    "marker of another revision": dataclasses.replace(
        content(A), owner=owner_of("autumn", A, "parcel-01")
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_does_not_agree_with_the_ledger_is_in_doubt(story: Story, name: str) -> None:
    assert in_doubt(story, A, ALONE[name]) == {A}


def test_a_model_that_changed_or_is_anothers_is_in_doubt(story: Story) -> None:
    for attempt in (A, B):
        story.end(attempt, model_file="model.safetensors", model=f"model of {attempt}")
    own = content(A, model=FoundFile(f"model of {A}"))
    assert in_doubt(story, A, own) == set()
    assert in_doubt(story, A, content(A)) == {A}
    assert in_doubt(story, A, content(A, model=FoundFile("other"))) == {A}
    assert in_doubt(story, A, content(A, model=FoundFile(f"model of {B}"))) == {A, B}


def test_two_trials_that_report_one_model_are_in_doubt(story: Story) -> None:
    for attempt in (A, B):
        story.end(attempt, model="m" * 64)
    assert chained(story, A) == chained(story, B) == {A, B}


# ---- who is involved ----------------------------------------------------------------------------


def test_whoever_resumed_from_an_attempt_in_doubt_is_in_doubt(story: Story) -> None:
    story.end(A, "expired", step=3)
    second = story.start(1, 2, resume=(3, f"{A}@3"))
    story.checkpoint(second, 6, "c6", f"{A}@3")
    story.end(second, "expired", step=6)
    third = story.start(1, 3, resume=(6, "c6"))
    assert in_doubt(story, B, foreign_header(story)) == {A, B, second, third}


def test_a_checkpoint_of_a_quarantined_attempt_makes_no_clean_parent(story: Story) -> None:
    story.end(A, "expired", step=3)
    second = story.start(1, 2, resume=(3, f"{A}@3"))
    assert chained(story, second) == set()
    story.quarantine(A)
    assert chained(story, second) == {second}


def test_an_attempt_that_began_with_anothers_checkpoint_puts_both_in_doubt(story: Story) -> None:
    thief = story.start(2, 2, resume=(3, f"{A}@3"))
    assert chained(story, thief) == {A, thief}
    assert chained(story, story.start(2, 3, resume=(3, "9" * 64))) == {"parcel-02/3"}


def test_the_ledger_alone_shows_shared_prefixes_and_shared_checkpoints() -> None:
    story = Story()
    story.batch(1, [1, 2])
    story.start(1, prefix="same")
    story.start(2, prefix="same")
    assert chained(story, A) == {A, B}
    assert len(story.state.lineage_faults) == 1
    story.quarantine(A)
    story.quarantine(B)
    assert not story.state.lineage_faults, "found before the batch closed"


# ---- files --------------------------------------------------------------------------------------


def test_a_prefix_cannot_be_left() -> None:
    assert is_below_prefix("checkpoint-3.safetensors")
    assert is_below_prefix("inner/checkpoint.safetensors")
    for outside in ("../other", "/etc/passwd", "inner/../../other", ""):
        assert not is_below_prefix(outside)


@pytest.mark.parametrize(
    "start", [b"", b"\x10" + b"\0" * 7, b"\x02" + b"\0" * 7 + b"{}", b"x" * 40]
)
def test_a_torn_or_foreign_header_is_no_lineage(start: bytes) -> None:
    assert read_found_file(start).lineage is None


def file_of(weights: np.ndarray, header: dict[str, str], kind: str = "F32") -> bytes:
    body = weights.tobytes()
    tensor = {"dtype": kind, "shape": list(weights.shape), "data_offsets": [0, len(body)]}
    metadata = {f"lineage.{key}": text for key, text in header.items()}
    start = canonical_json({"__metadata__": metadata, "weights": tensor})
    return len(start).to_bytes(8, "little") + start + body


def test_the_payload_is_the_tensors_whatever_the_header_says() -> None:
    weights = np.array([1.0, 2.0], "<f4")
    first, second = (read_found_file(file_of(weights, lineage(one, 3))) for one in (A, B))
    assert first.digest != second.digest
    assert first.payload == second.payload != ""
    assert first.lineage == lineage(A, 3)
    other = read_found_file(file_of(weights + 1, lineage(A, 3)))
    assert other.payload != first.payload


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("F32", np.array([1.0, np.nan], "<f4")),
        ("F64", np.array([np.inf], "<f8")),
        ("F16", np.array([np.nan], "<f2")),
        ("BF16", np.array([0x7FC0], "<u2")),
    ],
)
def test_weights_that_are_no_numbers_are_nobodys(kind: str, weights: np.ndarray) -> None:
    # two honest trainings that diverge may end in the same ones
    assert read_found_file(file_of(weights, lineage(A, 3), kind)).payload == ""


def test_a_file_whose_tensors_are_cut_has_no_payload() -> None:
    whole = file_of(np.ones(4, "<f4"), lineage(A, 3))
    for cut in (1, 4, 16):  # within a number, between two, all of them
        assert read_found_file(whole[:-cut]).payload == ""
