"""Which timestamps count, and every way in which a token can contradict what names it."""

from collections.abc import Sequence
from typing import Any

import pytest

from parcel_assets.adapters.timestamp_rfc3161 import read_token
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.ledger import Event, Kind, chain_event, event_bytes
from parcel_assets.core.stage import Stage
from parcel_assets.core.timestamps import (
    CLOCKS_APART_SECONDS,
    counting_timestamps,
    level_of,
    level_words,
    read_timestamps,
    timestamp_words,
    token_file,
)
from parcel_assets_tests.timestamp_authority import signer

NOW = 1_795_000_000.0
ROOT = signer().root_pem
SPLIT_RECORD = (Kind.STAGE_RECORDED, {"stage": str(Stage.SPLIT), "evidence": "e", "inputs": {}})
BATCH = (Kind.BATCH_OPENED, {"batch": 1})
FROZEN: tuple[Kind, dict[str, Any]] = (Kind.SELECTION_FROZEN, {})
OPENED: tuple[Kind, dict[str, Any]] = (Kind.HOLDOUT_OPENED, {})
STAMP = "stamp"
WHOLE = [SPLIT_RECORD, STAMP, BATCH, FROZEN, STAMP, OPENED]

Said = Sequence[Any]


def chain_of(
    said: Said, revision: str = "spring", apart: dict[int, float] | None = None
) -> tuple[list[Event], dict[str, bytes]]:
    """Return a chain and the token of each stamp by its digest; `apart` shifts a token's time."""
    events: list[Event] = []
    tokens: dict[str, bytes] = {}
    for place, one in enumerate(said):
        at = NOW + 10 * place
        kind, body = one if one != STAMP else (Kind.TIMESTAMP_RECORDED, {})
        if one == STAMP:
            stamped_at = at + (apart or {}).get(place, 0.0)
            digest = bytes.fromhex(digest_bytes(event_bytes(events[-1])))
            content = signer().token(digest, at_seconds=stamped_at)
            tokens[digest_bytes(content)] = content
            body = {
                "token": digest_bytes(content),
                "authority": signer().name,
                "stamped_at": stamped_at,
            }
        previous = events[-1] if events else None
        events.append(chain_event(previous, revision=revision, at_seconds=at, kind=kind, body=body))
    return events, tokens


def files_of(events: Sequence[Event], tokens: dict[str, bytes]) -> dict[str, bytes]:
    return {
        token_file(name): tokens[event.body["token"]]
        for name, event in counting_timestamps(events).items()
    }


def read(events: Sequence[Event], files: dict[str, bytes], roots: bytes | None = ROOT) -> list[str]:
    return [str(one) for one in read_timestamps(files, events, read_token, roots)[0]]


class TestWhichCount:
    @pytest.mark.parametrize(
        ("said", "names"),
        [
            (WHOLE, {"split", "choice"}),
            ([SPLIT_RECORD, BATCH, STAMP, FROZEN, OPENED], set()),  # after the first trial
            ([STAMP, SPLIT_RECORD, BATCH, FROZEN, STAMP, OPENED], {"choice"}),  # before the split
            ([SPLIT_RECORD, STAMP, SPLIT_RECORD, BATCH, OPENED], set()),  # of another split
            ([SPLIT_RECORD, STAMP, BATCH, STAMP, FROZEN, OPENED], {"split"}),  # chosen afterwards
            ([SPLIT_RECORD, STAMP, BATCH, FROZEN, OPENED, STAMP], {"split"}),  # after the look
            ([SPLIT_RECORD, STAMP], {"split"}),  # not searched yet
            ([SPLIT_RECORD, STAMP, STAMP, BATCH], {"split"}),
            ([OPENED], set()),
        ],
    )
    def test_its_place_in_the_chain_decides(self, said: Said, names: set[str]) -> None:
        events, _ = chain_of([FROZEN, *said] if said[0] == STAMP else said)
        assert set(counting_timestamps(events)) == names

    @pytest.mark.parametrize(
        ("custody", "said", "level"),
        [
            ("L1", WHOLE, "L2"),
            ("L3", WHOLE, "L3"),
            ("L1", [*WHOLE[:-2], OPENED], "L1"),
            ("L1", [SPLIT_RECORD, BATCH, FROZEN, STAMP, OPENED], "L1"),
        ],
    )
    def test_l2_needs_both(self, custody: str, said: Said, level: str) -> None:
        assert level_of(custody, chain_of(said)[0]) == level


class TestTokens:
    def test_a_sound_pair_has_no_fault_and_says_whose_it_is_and_when(self) -> None:
        events, tokens = chain_of(WHOLE)
        files = files_of(events, tokens)
        faults, words = read_timestamps(files, events, read_token, ROOT)
        assert not faults
        assert words == [
            (
                "split: stamped by CN=An authority at 2026-11-18T11:06:50Z, "
                "signed under a root that you trust"
            ),
            (
                "choice: stamped by CN=An authority at 2026-11-18T11:07:20Z, "
                "signed under a root that you trust"
            ),
        ]

    def test_without_a_root_nothing_is_said_to_be_checked(self) -> None:
        events, tokens = chain_of(WHOLE)
        faults, words = read_timestamps(files_of(events, tokens), events, read_token, None)
        assert not faults
        assert all(one.endswith("not checked against a root you trust") for one in words)

    def test_swapped_tokens_are_over_other_events(self) -> None:
        events, tokens = chain_of(WHOLE)
        files = files_of(events, tokens)
        split, choice = sorted(files)[1], sorted(files)[0]
        files[split], files[choice] = files[choice], files[split]
        faults = read(events, files)
        assert any("split.tsr: is over" in one for one in faults)
        assert any("choice.tsr: is over" in one for one in faults)

    def test_a_token_of_another_search_is_over_another_event(self) -> None:
        events, _ = chain_of(WHOLE)
        other, tokens = chain_of(WHOLE, revision="autumn")
        faults = read(events, files_of(other, tokens))
        assert [one.partition(",")[0][:30] for one in faults] == [
            f"timestamps/{name}.tsr: is over {other[place].digest[:2]}"[:30]
            for name, place in (("split", 0), ("choice", 3))
        ]

    @pytest.mark.parametrize("place", [1, 4])
    @pytest.mark.parametrize(
        ("apart", "word"),
        [
            (-CLOCKS_APART_SECONDS - 20, "early"),
            (CLOCKS_APART_SECONDS + 20, "late"),
            (-CLOCKS_APART_SECONDS + 20, None),
        ],
    )
    def test_a_time_outside_its_neighbours_is_a_fault(
        self, place: int, apart: float, word: str | None
    ) -> None:
        events, tokens = chain_of(WHOLE, apart={place: apart})
        faults = read(events, files_of(events, tokens))
        assert bool(faults) == (word is not None)
        assert all(str(word) in one for one in faults)

    def test_a_ledger_that_tells_another_time_than_the_token_is_a_fault(self) -> None:
        events, tokens = chain_of(WHOLE)
        files = files_of(events, tokens)
        told = dict(events[1].body) | {"stamped_at": NOW + 11}
        events[1] = chain_event(
            events[0], revision="spring", at_seconds=NOW + 10, kind=events[1].kind, body=told
        )
        assert read(events, files) == [
            "timestamps/split.tsr: says another authority or time than the ledger"
        ]

    def test_whoever_names_a_root_asks_for_both_and_for_that_root(self) -> None:
        events, tokens = chain_of(WHOLE)
        faults = read(events, files_of(events, tokens), signer("A stranger").root_pem)
        assert len(faults) == 2
        assert all("does not hold: a token that does not verify" in one for one in faults)
        unstamped, _ = chain_of([SPLIT_RECORD, BATCH, OPENED])
        assert read(unstamped, {}) == [
            "timestamps/split.tsr: is absent: the split is not timestamped",
            "timestamps/choice.tsr: is absent: the choice is not timestamped",
        ]
        assert read(unstamped, {}, None) == []


class TestWords:
    def test_the_level_says_why_and_whether_it_is_stamped(self) -> None:
        final = {"evidence_level": "L3", "evidence_level_reason": "only she can read the key"}
        bare, _ = chain_of([SPLIT_RECORD, BATCH, OPENED])
        assert level_words(final, bare) == (
            "a record of one opening with a key that the search could not use; "
            "only she can read the key; not timestamped"
        )
        assert "split timestamped 2026-11-18T11:06:50Z" in level_words(final, chain_of(WHOLE)[0])

    def test_a_missing_one_is_named(self) -> None:
        half, _ = chain_of([SPLIT_RECORD, BATCH, FROZEN, STAMP, OPENED])
        assert timestamp_words(half).startswith("split not timestamped, choice timestamped 2026")

    def test_packets_of_earlier_releases_keep_their_words(self) -> None:
        bare, _ = chain_of([SPLIT_RECORD, BATCH, OPENED])
        final = {"evidence_level": "L1"}
        assert level_words(final, bare) == "a consistent record of one opening"
