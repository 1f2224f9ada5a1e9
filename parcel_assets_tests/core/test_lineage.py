"""Which attempts a clash of checkpoints puts in doubt, and which it leaves alone."""

import pytest

from parcel_assets.core.errors import CheckpointError
from parcel_assets.core.lineage import (
    CheckpointFile,
    PrefixContent,
    chain_clash,
    checkpoint_clash,
    is_below_prefix,
    lineage_of,
    owner_of,
    prefix_clash,
    read_lineage_header,
)
from parcel_assets.core.trial import CheckpointSaved
from parcel_assets_tests.core.search_story import Story

A, B = "parcel-01/1", "parcel-02/1"


@pytest.fixture
def story() -> Story:
    story = Story()
    story.batch(1, [1, 2])
    story.start(1)
    story.start(2)
    return story


def lineage(attempt: str, step: int, parent: str | None = None) -> dict[str, str]:
    return lineage_of(
        revision="spring",
        plan_digest="p",
        identity_digest="i",
        subject=attempt.rpartition("/")[0],
        attempt=attempt,
        configuration={"width": 8},
        seed=1,
        step=step,
        parent_checkpoint=parent,
    )


def saved(attempt: str, step: int, digest: str, parent: str | None = None) -> CheckpointSaved:
    return CheckpointSaved(
        attempt=attempt,
        subject=attempt.rpartition("/")[0],
        step=step,
        file=f"checkpoint-{step}.safetensors",
        checkpoint=digest,
        parent_checkpoint=parent,
    )


def test_a_chain_of_own_checkpoints_is_clean(story: Story) -> None:
    record = story.state.attempts[A]
    assert checkpoint_clash(story.state, record, saved(A, 3, "c3"), lineage(A, 3)) == {}
    story.checkpoint(A, 3, "c3")
    second = saved(A, 6, "c6", "c3")
    assert checkpoint_clash(story.state, record, second, lineage(A, 6, "c3")) == {}
    assert chain_clash(story.state, record) == {}
    assert story.state.lineage_faults == ()


def test_resuming_the_checkpoint_of_another_trial_puts_both_in_doubt(story: Story) -> None:
    # the signature incident: the second worker resumes the first one's checkpoint
    story.checkpoint(A, 3, "c3")
    forged = saved(B, 6, "c6", "c3")
    clash = checkpoint_clash(story.state, story.state.attempts[B], forged, lineage(B, 6, "c3"))
    assert set(clash) == {A, B}


def test_a_checkpoint_that_names_another_attempt_puts_both_in_doubt(story: Story) -> None:
    found = saved(B, 3, "c3")
    clash = checkpoint_clash(story.state, story.state.attempts[B], found, lineage(A, 3))
    assert set(clash) == {A, B}


def test_a_forged_trial_with_a_wrong_parent_is_found_by_the_parent(story: Story) -> None:
    story.checkpoint(A, 3, "c3")
    hidden = saved(B, 6, "c6", None)
    clash = checkpoint_clash(story.state, story.state.attempts[B], hidden, lineage(B, 6, "c3"))
    assert set(clash) == {A, B}


def test_whoever_resumed_from_an_attempt_in_doubt_is_in_doubt(story: Story) -> None:
    story.checkpoint(A, 3, "c3")
    story.end(A, "expired", step=3)
    second = story.start(1, 2, resume=(3, "c3"))
    content = PrefixContent(owner_of("spring", B, "parcel-02"), {})
    clash = prefix_clash(story.state, "spring", story.state.attempts[A], content)
    assert set(clash) == {A, B, second}


def own_content(attempt: str, **files: CheckpointFile) -> PrefixContent:
    checkpoints = {f"{name.replace('_', '-')}.safetensors": one for name, one in files.items()}
    return PrefixContent(owner_of("spring", attempt, attempt.rpartition("/")[0]), checkpoints)


def test_files_below_a_prefix_must_be_its_own(story: Story) -> None:
    story.checkpoint(A, 3, "c3")
    record = story.state.attempts[A]
    own = CheckpointFile("c3", lineage(A, 3))
    assert prefix_clash(story.state, "spring", record, own_content(A, checkpoint_3=own)) == {}
    foreign = own_content(A, checkpoint_3=own, checkpoint_9=CheckpointFile("x", lineage(B, 9)))
    assert set(prefix_clash(story.state, "spring", record, foreign)) == {A, B}
    replaced = own_content(A, checkpoint_3=CheckpointFile("other", lineage(A, 3)))
    assert set(prefix_clash(story.state, "spring", record, replaced)) == {A}
    assert set(prefix_clash(story.state, "spring", record, own_content(A))) == {A}


def test_torn_files_that_nobody_reported_and_unreported_own_ones_are_harmless(story: Story) -> None:
    record = story.state.attempts[A]
    content = own_content(
        A, checkpoint_3=CheckpointFile("x", None), checkpoint_6=CheckpointFile("y", lineage(A, 6))
    )
    assert prefix_clash(story.state, "spring", record, content) == {}


def test_a_coordinator_that_died_before_the_folder_was_made_leaves_no_doubt(story: Story) -> None:
    record = story.state.attempts[A]
    assert prefix_clash(story.state, "spring", record, PrefixContent(None)) == {}
    story.checkpoint(A, 3, "c3")
    assert set(prefix_clash(story.state, "spring", record, PrefixContent(None))) == {A}


def test_the_ledger_alone_shows_shared_prefixes_and_shared_checkpoints() -> None:
    story = Story()
    story.batch(1, [1, 2])
    story.start(1, prefix="same")
    story.start(2, prefix="same")
    assert set(chain_clash(story.state, story.state.attempts[A])) == {A, B}
    assert len(story.state.lineage_faults) == 1
    story.quarantine(A)
    story.quarantine(B)
    assert not story.state.lineage_faults, "found before the batch closed"


def test_a_prefix_cannot_be_left() -> None:
    assert is_below_prefix("checkpoint-3.safetensors")
    assert is_below_prefix("inner/checkpoint.safetensors")
    for outside in ("../other", "/etc/passwd", "inner/../../other", ""):
        assert not is_below_prefix(outside)


@pytest.mark.parametrize(
    "start", [b"", b"\x10" + b"\0" * 7, b"\x02" + b"\0" * 7 + b"{}", b"x" * 40]
)
def test_a_torn_or_foreign_header_is_no_lineage(start: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_lineage_header(start, "here")
