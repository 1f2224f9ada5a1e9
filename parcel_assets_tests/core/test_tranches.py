"""Tranches: each shipment in one for ever, spent ones in none that is free, the lowest is next."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcel_assets.core.errors import PlanError, SplitError
from parcel_assets.core.holdout import claimable_level, first_openers, spent_shipments, spent_words
from parcel_assets.core.plan import SplitPlan
from parcel_assets.core.split import Assignment
from parcel_assets.core.tranches import (
    HoldoutClaim,
    deal_tranches,
    holdout_rows,
    require_own_tranche,
    taken_shipments,
)
from parcel_assets_tests.core.plans import plan

SPLIT = SplitPlan(key="test key", holdout_tranches=3)
SHIPMENTS = tuple(f"S{number:02}" for number in range(30))


def holdout_of(*components: tuple[str, ...], train: tuple[tuple[str, ...], ...] = ()) -> Assignment:
    return Assignment(
        parts={
            "train": tuple(one for component in train for one in component),
            "validation": (),
            "holdout": tuple(sorted(one for component in components for one in component)),
        },
        components=tuple(sorted((*components, *train))),
        quarantined=(),
    )


def singles(*shipments: str) -> Assignment:
    return holdout_of(*((one,) for one in shipments))


def deal(
    assignment: Assignment,
    register: Mapping[str, int] | None = None,
    taken: Mapping[str, str] | None = None,
    **given: int | None,
) -> Assignment:
    return deal_tranches(assignment, SPLIT, register or {}, taken or {}, **given)


class TestDealing:
    def test_every_holdout_shipment_is_in_exactly_one_tranche(self) -> None:
        dealt = deal(singles(*SHIPMENTS))
        assert sorted(one for members in dealt.tranches.values() for one in members) == list(
            SHIPMENTS
        )
        assert set(dealt.tranches) == {1, 2, 3}
        assert dealt.tranche == 1
        assert set(dealt.reserved) == {2, 3}

    def test_other_parts_are_left_alone(self) -> None:
        dealt = deal(holdout_of(("h1",), train=(("t1", "t2"),)))
        assert set(dealt.tranche_of) == {"h1"}
        assert dealt.parts["train"] == ("t1", "t2")

    def test_a_component_stays_together(self) -> None:
        pairs = tuple((f"a{n}", f"b{n}") for n in range(12))
        dealt = deal(holdout_of(*pairs))
        assert all(dealt.tranche_of[one] == dealt.tranche_of[other] for one, other in pairs)

    @given(st.sets(st.sampled_from(SHIPMENTS), min_size=1), st.integers(1, 20))
    def test_a_grown_archive_moves_no_shipment(self, first: set[str], seed: int) -> None:
        before = deal(singles(*sorted(first)))
        grown = deal_tranches(
            singles(*SHIPMENTS),
            SplitPlan(key=f"another {seed}", holdout_tranches=seed),
            before.tranche_of,
            dict.fromkeys(before.tranches[before.tranche or 0], "first"),
        )
        for shipment, number in before.tranche_of.items():
            assert grown.tranche_of[shipment] == number
        spent = set(before.tranches[before.tranche or 0])
        assert not spent & set(grown.tranches.get(grown.tranche or 0, ()))
        # and what came later joined no spent tranche
        assert set(grown.tranches[before.tranche or 0]) == spent

    def test_the_next_search_gets_the_lowest_tranche_that_is_free(self) -> None:
        first = deal(singles(*SHIPMENTS))
        taken = dict.fromkeys(first.tranches[1], "first")
        second = deal(singles(*SHIPMENTS), first.tranche_of, taken)
        assert (second.tranche, set(second.reserved)) == (2, {3})
        taken |= dict.fromkeys(first.tranches[2], "second")
        assert deal(singles(*SHIPMENTS), first.tranche_of, taken).tranche == 3

    def test_with_every_tranche_spent_later_shipments_form_a_fresh_one(self) -> None:
        first = deal(singles(*SHIPMENTS))
        taken = dict.fromkeys(SHIPMENTS, "earlier")
        later = deal(singles(*SHIPMENTS, "new1", "new2"), first.tranche_of, taken)
        assert (later.tranche, later.tranches[4]) == (4, ("new1", "new2"))
        assert later.reserved == {}

    def test_a_holdout_opened_without_tranches_stays_aside(self) -> None:
        dealt = deal(
            singles("old1", "old2", "new1", "new2", "new3"), taken={"old1": "a", "old2": "a"}
        )
        assert set(dealt.tranche_of) == {"new1", "new2", "new3"}

    def test_a_split_that_died_after_its_seal_keeps_its_tranche(self) -> None:
        first = deal(singles(*SHIPMENTS))
        assert deal(singles(*SHIPMENTS), first.tranche_of, own=2).tranche == 2

    @pytest.mark.parametrize(
        ("register", "taken"),
        [({"a": 1, "b": 2}, {}), ({"a": 1, "b": 2}, {"a": "x"}), ({"a": 1}, {"b": "x"})],
        ids=["two free tranches", "a spent and a free one", "spent outside and a free one"],
    )
    def test_a_component_that_newly_joins_them_is_quarantined_whole(
        self, register: dict[str, int], taken: dict[str, str]
    ) -> None:
        dealt = deal(holdout_of(("a", "b"), ("c",)), register, taken)
        assert dealt.quarantined_shipments == ("a", "b")
        assert "a" not in dealt.tranche_of
        assert dealt.parts["holdout"] == ("c",)
        assert dealt.components == (("c",),)

    def test_what_joins_a_spent_tranche_is_spent_with_it(self) -> None:
        dealt = deal(holdout_of(("a", "new"), ("c",)), {"a": 1}, {"a": "x"})
        assert dealt.tranche_of["new"] == 1
        assert dealt.tranche != 1

    def test_nothing_left_is_said_with_who_has_it(self) -> None:
        taken = dict.fromkeys(SHIPMENTS, "first")
        dealt = deal(singles(*SHIPMENTS), taken=taken)
        claims = [HoldoutClaim("first", "depot", SHIPMENTS, sealed_at=1.0)]
        with pytest.raises(SplitError, match=r"first \(sealed tranche of all\)"):
            require_own_tranche(dealt, claims, "split of second")

    def test_a_document_holds_ids_never_the_rule(self) -> None:
        document = deal(singles("a", "b")).document()
        assert sum(len(members) for members in document["tranches"].values()) == 2
        assert document["tranche"] in {1, 2, 3}
        assert "tranche" not in singles("a").document()


class TestPlaces:
    def test_the_own_tranche_is_told_from_others_and_from_what_was_spent_outside_any(self) -> None:
        dealt = deal(
            singles("a", "b", "c"), register={"a": 1, "b": 2}, taken={"a": "spring", "c": "winter"}
        )
        assert dealt.tranche == 2
        assert dealt.place_of == {"a": "holdout tranche 1", "b": "holdout", "c": "spent holdout"}

    def test_without_tranches_a_place_is_a_part(self) -> None:
        plain = holdout_of(("a",), train=(("t",),))
        assert plain.place_of == plain.part_of == {"a": "holdout", "t": "train"}


class TestTaken:
    def test_a_live_search_keeps_its_tranche_and_a_closed_one_gives_it_back(self) -> None:
        sealed = HoldoutClaim("first", "depot", ("a",), tranche=1, sealed_at=1.0)
        closed = HoldoutClaim("second", "depot", ("b",), tranche=2, sealed_at=1.0, ended=True)
        spent = HoldoutClaim(
            "third", "depot", ("c",), tranche=3, sealed_at=1.0, opened_at=2.0, ended=True
        )
        assert taken_shipments("fourth", [sealed, closed, spent], {}) == {
            "a": "first",
            "c": "third",
        }
        assert taken_shipments("first", [sealed], {}) == {}

    def test_openings_count_though_no_ledger_knows_the_search(self) -> None:
        assert taken_shipments("second", [], {"a": "lost", "b": "second"}) == {"a": "lost"}


class TestNames:
    ROWS = (
        {"shipment_id": "a", "pixel_digest": "1"},
        {"shipment_id": "b", "pixel_digest": "2"},
    )

    def test_the_first_opener_counts_and_the_ledger_before_receipts(self) -> None:
        receipts = [
            {"revision": "late", "at_seconds": 2.0, "keys": ["k1", "k2"]},
            {"revision": "early", "at_seconds": 1.0, "keys": ["k1"]},
        ]
        openers = first_openers(["k1", "k2", "k3"], {}, receipts)
        assert openers == {"k1": "early", "k2": "late"}
        assert first_openers(["k1"], {"k1": "ledger"}, receipts)["k1"] == "ledger"

    def test_a_shipment_is_spent_by_its_name_or_by_a_photo_under_another(self) -> None:
        assert spent_shipments("depot", self.ROWS, {"shipment:depot/a": "x"}) == {"a": "x"}
        assert spent_shipments("other", self.ROWS, {"shipment:depot/a": "x"}) == {}
        assert spent_shipments("other", self.ROWS, {"image:2": "x"}) == {"b": "x"}

    def test_words_name_the_first_few_and_who(self) -> None:
        words = spent_words(dict.fromkeys("abcdefg", "spring"))
        assert words == "7 shipments (a, b, c, d, e, …), opened by spring"

    @pytest.mark.parametrize(
        ("changes", "level", "reason"),
        [
            ({}, "L3", "neither sealed nor searched"),
            ({"to_key_holder": False}, "L1", "made where the search ran"),
            ({"key_mode": 0o640}, "L1", "others than its owner can read the label key (mode 640)"),
            ({"key_owner": 1000}, "L1", "belongs to a user who sealed or searched"),
            ({"search_owners": {0}}, "L1", "an administrator searched"),
            ({"search_owners": {1000, 1002}}, "L1", "belongs to a user who sealed or searched"),
            ({"without_l3": True}, "L1", "opened with --without-l3"),
        ],
    )
    def test_l3_is_claimed_only_where_the_search_could_not_read_the_key(
        self, changes: dict[str, object], level: str, reason: str
    ) -> None:
        usual: dict[str, object] = {
            "to_key_holder": True,
            "key_mode": 0o100600,
            "key_owner": 1002,
            "search_owners": {1000, 1001},
        }
        claim = claimable_level(**usual | changes)  # type: ignore[arg-type]
        assert claim.level == level
        assert reason in claim.reason


class TestPlan:
    def test_a_plan_without_tranches_keeps_its_digest(self) -> None:
        document = plan().document()
        assert "holdout_tranches" not in document["split"]
        assert "allow_spent" not in document["final"]
        assert plan(split__holdout_tranches=2).digest != plan().digest
        assert plan(final__allow_spent=True).digest != plan().digest

    @pytest.mark.parametrize("tranches", [0, 21])
    def test_too_few_or_too_many_tranches_are_refused(self, tranches: int) -> None:
        with pytest.raises(PlanError, match=r"split\.holdout_tranches"):
            plan(split__holdout_tranches=tranches)

    def test_tranches_and_a_spent_holdout_contradict(self) -> None:
        with pytest.raises(PlanError, match="a tranche holds no spent shipment"):
            plan(split__holdout_tranches=2, final__allow_spent=True)


class TestRows:
    REGISTER = dict.fromkeys("abcdefg", "holdout") | {"t": "train"}

    def test_each_shipment_counts_once_in_its_furthest_state(self) -> None:
        claims = [
            HoldoutClaim(
                "first", "depot", ("a", "b"), 1, {2: ("c", "d")}, 1.0, opened_at=2.0, judged_at=3.0
            ),
            HoldoutClaim("second", "depot", ("c",), 2, {}, 4.0, opened_at=5.0),
            HoldoutClaim("third", "depot", ("e",), 3, {}, 6.0),
        ]
        numbers = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": 3}
        rows = holdout_rows(self.REGISTER, numbers, claims)
        told = [
            (row["tranche"], row["state"], row["shipments"], row["revision"], row["opened_at"])
            for row in rows
        ]
        assert told == [
            (None, "unseen", 1, None, None),
            (1, "spent", 2, "first", 2.0),
            (2, "sealed", 1, None, None),
            (2, "opened", 1, "second", 5.0),
            (3, "unseen", 1, None, None),
            (3, "sealed", 1, "third", None),
        ]
        assert sum(row["shipments"] for row in rows) == 7

    def test_a_search_closed_unopened_leaves_a_seal_that_is_nobody_s(self) -> None:
        claims = [HoldoutClaim("first", "depot", ("a",), 1, {}, 1.0, ended=True)]
        rows = holdout_rows({"a": "holdout"}, {"a": 1}, claims)
        assert [(row["state"], row["revision"]) for row in rows] == [("sealed", None)]
