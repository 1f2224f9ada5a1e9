"""Plan files: found by path or name, pinned by changing one line."""

from pathlib import Path

import pytest

from parcel_assets.adapters import plan_folder
from parcel_assets.adapters.plan_folder import (
    find_plan,
    list_plans,
    read_plan_file,
    write_copy,
    write_pin,
)
from parcel_assets.core.errors import PlanError

PIN = "ab" * 32
TEXT = """\
# a comment that stays
purpose = "a test"

[snapshot]   # the archive
archive = "test-parcels"
location = "archives/test"
digest = ""  # written by snapshot pin

[split]
key = "k"

[metric]
missed_damage = 5.0
needless_review = 1.0

[search]
budget_trials = 8
cap_accelerator_hours = 20.0

[space.learning_rate]
kind = "float"
low = 1e-4
high = 1e-1

[reference]
configuration = { learning_rate = 0.002 }

[final]
target_cost_per_1000 = 900.0
"""


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    path = tmp_path / "parcels-a.toml"
    path.write_text(TEXT)
    return path


def test_a_byte_order_mark_and_line_ends_of_another_system_stay(plan_path: Path) -> None:
    before = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    plan_path.write_bytes(before)
    write_pin(plan_path, PIN)
    assert plan_path.read_bytes() == before.replace(b'digest = ""', f'digest = "{PIN}"'.encode())
    assert read_plan_file(plan_path).plan.snapshot.digest == PIN


def test_pinning_changes_one_line_and_keeps_its_comment(plan_path: Path) -> None:
    write_pin(plan_path, PIN)
    before, after = TEXT.splitlines(), plan_path.read_text().splitlines()
    changed = [number for number, line in enumerate(before) if after[number] != line]
    assert [after[number] for number in changed] == [f'digest = "{PIN}"  # written by snapshot pin']
    assert read_plan_file(plan_path).plan.snapshot.digest == PIN


def test_pinning_twice_is_pinning_once(plan_path: Path) -> None:
    write_pin(plan_path, PIN)
    once = plan_path.read_bytes()
    write_pin(plan_path, PIN)
    assert plan_path.read_bytes() == once


def test_a_missing_line_is_added_below_its_section(plan_path: Path) -> None:
    plan_path.write_text(TEXT.replace('digest = ""  # written by snapshot pin\n', ""))
    write_pin(plan_path, PIN)
    assert read_plan_file(plan_path).plan.snapshot.digest == PIN


def test_line_endings_of_another_system_stay(plan_path: Path) -> None:
    plan_path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    write_pin(plan_path, PIN)
    data = plan_path.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") == TEXT.count("\n")
    assert read_plan_file(plan_path).plan.snapshot.digest == PIN


def test_a_plan_that_cannot_take_the_pin_is_refused_with_the_line_to_write(plan_path: Path) -> None:
    inline = "\n".join(line for line in TEXT.splitlines() if not line.startswith("[snapshot]"))
    plan_path.write_text(inline)
    with pytest.raises(PlanError, match=f'digest = "{PIN}"'):
        write_pin(plan_path, PIN)
    assert plan_path.read_text() == inline


def test_a_copy_has_other_words_in_its_snapshot_section_only(plan_path: Path) -> None:
    target = plan_path.with_name("parcels-b.toml")
    write_copy(plan_path, target, {"archive": "other", "location": "archives/other", "digest": PIN})
    first, second = read_plan_file(plan_path).plan, read_plan_file(target).plan
    assert (second.snapshot.archive, second.snapshot.location) == ("other", "archives/other")
    assert second.snapshot.digest == PIN
    assert first.model_copy(update={"snapshot": second.snapshot}) == second


def test_a_plan_is_found_by_path_and_by_revision(plan_path: Path, tmp_path: Path) -> None:
    assert find_plan(str(plan_path), tmp_path / "elsewhere").revision == "parcels-a"
    assert find_plan("parcels-a", tmp_path).path == plan_path
    assert list_plans(tmp_path) == (plan_path,)


def test_an_unknown_plan_names_the_nearest(plan_path: Path, tmp_path: Path) -> None:
    assert plan_path.is_file()
    with pytest.raises(PlanError, match="did you mean 'parcels-a'"):
        find_plan("parcel-a", tmp_path)


def test_a_file_name_that_is_no_revision_is_refused(plan_path: Path) -> None:
    bad = plan_path.rename(plan_path.with_name("Parcels A.toml"))
    with pytest.raises(PlanError, match="search revision"):
        read_plan_file(bad)


@pytest.mark.parametrize("odd", ["\u2028", "\x85"])
def test_lines_are_what_toml_calls_lines(tmp_path: Path, odd: str) -> None:
    text = f'[snapshot]\nlocation = "a" # see{odd}digest = "old"\ndigest = ""\n'
    (tmp_path / "odd.toml").write_text(text, encoding="utf-8")
    plan_folder.write_copy(tmp_path / "odd.toml", tmp_path / "copy.toml", {"digest": "new"})
    assert (tmp_path / "copy.toml").read_text("utf-8") == text.replace('""', '"new"')


def test_a_folder_named_like_a_plan_is_called_a_folder(tmp_path: Path) -> None:
    (tmp_path / "parcels-a.toml").mkdir()
    with pytest.raises(PlanError, match="found a folder; expected a plan file"):
        find_plan("parcels-a", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="Not a directory"):
        find_plan("parcels-a", tmp_path / "file")
