"""Drills with real workers: one of them always, all of them in the slow suite; and how they end."""

import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from parcel_assets import cli_drill
from parcel_assets.cli_common import Options
from parcel_assets.core.errors import SettingError
from parcel_assets.core.ledger import Kind
from parcel_assets.drills import judge_attempts
from parcel_assets.drills.ground import Base, Ground
from parcel_assets.drills.records import Check, DrillError, Report
from parcel_assets.drills.registry import DRILLS, Drill, evidence_of
from parcel_assets.drills.watch import processes_on, wait_for
from parcel_assets_tests.commands import command, document, start


def drill_with(play: Callable[[Ground, Report], None]) -> Drill:
    return Drill(play.__name__, "an incident", "an outcome", play, empty=True)


def run(monkeypatch: pytest.MonkeyPatch, *drills: Drill, keep: Path | None = None) -> int:
    monkeypatch.setattr(cli_drill, "DRILLS", drills)
    monkeypatch.setattr(cli_drill, "OPTIONS", Options())
    with pytest.raises(typer.Exit) as ended:
        cli_drill.drill(None, keep, show_list=False, as_json=False)
    return int(ended.value.exit_code)


def right(ground: Ground, report: Report) -> None:
    ledger = ground.ports.ledger
    lease = ledger.acquire("drill", "test")
    ledger.append(lease, [(Kind.PLAN_FROZEN, {"plan": {}, "plan_digest": "0" * 64})])
    report.ask(Check("Is it handled?", True, "it is"))


def wrong(ground: Ground, report: Report) -> None:
    right(ground, report)
    report.ask(Check("Rightly?", False, "it is not"))


def ledgerless(_ground: Ground, report: Report) -> None:
    report.ask(Check("Is it handled?", True, "it is"))


def too_late(_ground: Ground, _report: Report) -> None:
    raise DrillError("the end", expected="the middle", where="here", remedy="Again.")


def test_the_exit_code_is_that_of_the_worst_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, drill_with(right)) == 0
    assert run(monkeypatch, drill_with(right), drill_with(wrong)) == 1
    told = capsys.readouterr().out
    assert "NO   Rightly? it is not" in told
    assert "WRONG outcome" in told


@pytest.mark.parametrize("play", [ledgerless, too_late])
def test_what_was_not_brought_about_or_not_judged_is_no_right_outcome(
    monkeypatch: pytest.MonkeyPatch, play: Callable[[Ground, Report], None]
) -> None:
    assert run(monkeypatch, drill_with(play)) == 1


def test_an_incident_that_nobody_noticed_ends_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judges of a real drill, asked of an untouched ledger, say no."""

    def unnoticed(ground: Ground, report: Report) -> None:
        with ground.base.ground("prepared") as prepared:
            found = prepared.scene()
        assert found.events[0].kind == Kind.PLAN_FROZEN
        report.ask(
            judge_attempts.refused_at_the_door(found, {"metric"}, 0),
            judge_attempts.no_slot_spent(found),
        )

    assert run(monkeypatch, drill_with(unnoticed)) == 1


def test_the_folder_goes_unless_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(monkeypatch, drill_with(right)) == 0
    assert list(tmp_path.iterdir()) == []
    assert run(monkeypatch, drill_with(right), keep=tmp_path / "kept") == 0
    assert (tmp_path / "kept" / "right").is_dir()
    with pytest.raises(SettingError, match="not empty"):
        run(monkeypatch, drill_with(right), keep=tmp_path / "kept")


def test_what_a_drill_started_ends_with_it(tmp_path: Path) -> None:
    base = Base(tmp_path, lambda _words: None)
    with base.ground("sleepy", empty=True) as ground:
        ground.start(["sleep", "1000"])
        assert len(processes_on(ground.data)) == 1
    assert processes_on(ground.data) == []


def test_names_are_unique_and_an_unknown_one_is_told_the_others() -> None:
    assert len({one.name for one in DRILLS}) == len(DRILLS)
    with pytest.raises(SettingError, match="shared-prefix"):
        cli_drill.drill(["shared-prefixes"], None, show_list=False, as_json=False)


def test_a_worker_with_other_costs_for_real(tmp_path: Path) -> None:
    told = document(
        command(tmp_path, "drill", "other-metric", "--keep", str(tmp_path / "kept"), "--json")
    )
    assert told["passed"]
    assert processes_on(tmp_path / "kept" / "other-metric") == []


@pytest.mark.slow
def test_a_polite_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    process = start(tmp_path, "drill", "worker-paused", "--keep", str(kept))
    wait_for(lambda: bool(processes_on(kept / "undisturbed")), "a run")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 130
    assert processes_on(kept / "undisturbed") == []


@pytest.mark.slow
@pytest.mark.parametrize("one", [one.name for one in DRILLS])
def test_every_drill_has_the_right_outcome(one: str, tmp_path: Path) -> None:
    done = command(tmp_path, "drill", one)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_list_says_what_is_injected_and_what_is_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli_drill.drill(None, None, show_list=True, as_json=True)
    listed = json.loads(capsys.readouterr().out)["drills"]
    assert [one["drill"] for one in listed] == [one.name for one in DRILLS]
    assert all(one["incident"] and one["right"] for one in listed)


@pytest.mark.parametrize("option", [("--engine", "ray"), ("--workers", "4"), ("--data", "here")])
def test_a_drill_refuses_an_option_that_would_change_nothing(
    option: tuple[str, str], tmp_path: Path
) -> None:
    done = command(tmp_path, *option, "drill", "worker-killed")
    assert done.returncode == 1
    assert f"{option[0]} before `drill`" in done.stderr


def test_settings_that_reach_no_drill_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [one for one in os.environ if one.startswith("PARCEL_ASSETS_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    run(monkeypatch, drill_with(right))
    assert "Not used by a drill" not in "".join(capsys.readouterr())
    monkeypatch.setenv("PARCEL_ASSETS_ENGINE", "ray")
    monkeypatch.setenv("PARCEL_ASSETS_WORKERS", "")
    run(monkeypatch, drill_with(right))
    (line,) = (o for o in "".join(capsys.readouterr()).splitlines() if "Not used by a drill" in o)
    assert line.endswith("its own: PARCEL_ASSETS_ENGINE.")


def test_a_kept_drill_explains_the_revision_that_it_does_not_run(tmp_path: Path) -> None:
    drills = {one.name: one for one in DRILLS}
    told = evidence_of(drills["nan-metric"], tmp_path)
    assert "status drill-nan" in told[0]
    assert told[-1].startswith("(drill, listed too")
    assert len(evidence_of(drills["worker-killed"], tmp_path)) == len(told) - 1
