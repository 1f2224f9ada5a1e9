"""What every engine must do: one suite for engines with real processes, its first part for all.

A test module inherits a suite, opens its engine and ends a worker from outside. `logs` is a fixture
of its own.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.errors import SettingError
from parcel_assets.core.ports import Engine
from parcel_assets_tests.search_world import World, setup_of, small_plan

CONTRACT = (sys.executable, "-m", "parcel_assets_tests.contract_worker")
SEARCH = (sys.executable, "-m", "parcel_assets_tests.fake_worker", "{}")

Left = tuple[int, int, set[int]]  # open files, threads, marked processes

PATIENCE_SECONDS = 60.0
SECRETS = {
    "PARCEL_ASSETS_LEDGER_URL": "postgresql://someone:hushhush@ledger/parcels",
    "PARCEL_ASSETS_KEYS": "/keys/hushhush",
    "PARCEL_ASSETS_VAULT": "/vault/hushhush",
    "AWS_SECRET_ACCESS_KEY": "hushhush",
    "AWS_SESSION_TOKEN": "hushhush",
    "GITHUB_TOKEN": "hushhush",
    "PGPASSWORD": "hushhush",
    "DAGSTER_HOME": "/dagster/hushhush",
}

GARBAGE = {
    "text": "no json",
    "list": "[]",
    "number": '{"kind": 3}',
    "lost": '{"kind": "lost"}',
    "nan": '{"kind": "a", "x": NaN}',
    "deep": "[" * 99999,
    "half-character": '{"kind": "a", "x": "\\ud800"}',
    "null": "\x00",
    "long": "9" * 9999,
}
CHALLENGE = {
    "kind": "challenge",
    "nonce": "5" * 32,
    "rows": {"train": [0], "validation": [1]},
}
ODD_NAMES = ("a/b.1.2", "../up", ".", " ", "é🅿", "x" * 300, "a\nb%2F")

Said = list[tuple[str, dict[str, Any]]]


def hear_until(engine: Engine, enough: Callable[[Said], bool]) -> Said:
    """Return all that was said until it is enough, signs of life left out."""
    said: Said = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not enough(said):
        assert time.monotonic() < deadline, f"only heard {kinds_of(said)} of {len(said)}"
        said += [one for one in engine.receive(0.5) if one[1]["kind"] != "alive"]
    return said


def hear(engine: Engine, kind: str, worker_id: str = "w1") -> dict[str, Any]:
    """Return the first message of a kind from a worker."""

    def of_kind(said: Said) -> list[dict[str, Any]]:
        return [message for who, message in said if (who, message["kind"]) == (worker_id, kind)]

    return of_kind(hear_until(engine, lambda said: bool(of_kind(said))))[0]


def kinds_of(said: Said, worker_id: str = "w1") -> list[str]:
    return [message["kind"] for who, message in said if who == worker_id]


def hears_nothing_more(engine: Engine, *worker_ids: str) -> None:
    """Listen for a while to what must not come."""
    for _ in range(5):
        assert [one for one in engine.receive(0.1) if one[0] in worker_ids] == []


def is_gone(process: int) -> bool:
    """Say whether a process has ended; one that only waits to be collected has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(done: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def setup_file(folder: Path, behaviour: str, **facts: Any) -> Path:
    """Write the setup of a contract worker that behaves in one way."""
    path = folder / f"{behaviour}.json"
    path.write_text(json.dumps({"behaviour": behaviour} | facts))
    return path


class SearchEngineContract:
    """What the search asks of an engine, in its own words, of real workers with a fake trainer."""

    command: tuple[str, ...] = SEARCH

    def open_engine(self, logs: Path, command: tuple[str, ...]) -> Engine:
        """Return an engine whose workers run a command."""
        raise NotImplementedError

    def end_worker(self, engine: Engine, worker_id: str) -> None:
        """Make a worker end from outside, without a word."""
        raise NotImplementedError

    @pytest.fixture
    def engine(self, logs: Path) -> Iterator[Engine]:
        with closing(self.open_engine(logs, self.command)) as engine:
            yield engine

    @pytest.fixture
    def setup(self, tmp_path: Path) -> Path:
        world = World(tmp_path)
        world.freeze(small_plan())
        return setup_of(world)

    def test_a_worker_introduces_itself_answers_and_is_ready_in_this_order(
        self, engine: Engine, setup: Path
    ) -> None:
        engine.start("w1", setup)
        said = hear_until(engine, lambda said: "hello" in kinds_of(said))
        engine.send("w1", CHALLENGE)
        said += hear_until(engine, lambda said: "ready" in kinds_of(said))
        assert kinds_of(said) == ["hello", "answer", "ready"]
        assert said[0][1]["identity"]
        assert said[1][1]["digests"]

    def test_one_that_ends_is_lost_once_with_a_reason_and_the_others_go_on(
        self, engine: Engine, setup: Path
    ) -> None:
        for worker_id in ("w1", "w2"):
            engine.start(worker_id, setup)
        hear_until(engine, lambda said: len({who for who, _ in said}) == 2)
        self.end_worker(engine, "w1")
        lost = hear(engine, "lost")
        assert lost["reason"]
        engine.send("w1", CHALLENGE)
        engine.stop("w1")
        hears_nothing_more(engine, "w1")
        engine.send("w2", CHALLENGE)
        hear(engine, "ready", "w2")

    def test_one_that_is_stopped_says_nothing_more(self, engine: Engine, setup: Path) -> None:
        engine.start("w1", setup)
        engine.stop("w1")
        engine.send("w1", CHALLENGE)
        engine.stop("w1")
        hears_nothing_more(engine, "w1")

    def test_an_id_is_used_once(self, engine: Engine, setup: Path) -> None:
        engine.start("w1", setup)
        with pytest.raises(SettingError, match="a second worker named 'w1'"):
            engine.start("w1", setup)
        engine.stop("w1")
        with pytest.raises(SettingError, match="a second worker named 'w1'"):
            engine.start("w1", setup)

    def test_one_that_was_never_started_is_no_worker(self, engine: Engine) -> None:
        with pytest.raises(SettingError, match="no worker named 'w9'"):
            engine.send("w9", {"kind": "order"})
        with pytest.raises(SettingError, match="no worker named 'w9'"):
            engine.stop("w9")

    def test_without_a_message_receiving_ends_with_its_time(self, engine: Engine) -> None:
        assert engine.receive(0.0) == []
        assert engine.receive(0.05) == []

    def test_a_closed_engine_has_no_worker_and_starts_none(
        self, engine: Engine, setup: Path
    ) -> None:
        engine.start("w1", setup)
        engine.close()
        with pytest.raises(SettingError, match="closed"):
            engine.start("w2", setup)


class EngineContract(SearchEngineContract):
    """What an engine does with real processes, whatever these do."""

    command = CONTRACT

    @pytest.fixture(autouse=True)
    def _secrets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)

    @pytest.fixture
    def behaving(self, tmp_path: Path) -> Callable[..., Path]:
        """Return what writes the setup of a worker that behaves in one way."""
        return partial(setup_file, tmp_path)

    @pytest.fixture
    def setup(self, tmp_path: Path) -> Path:
        return setup_file(tmp_path, "protocol")

    @pytest.fixture
    def broken(self, logs: Path) -> Iterator[Engine]:
        with closing(self.open_engine(logs, ("/nowhere/python",))) as engine:
            yield engine

    def test_a_worker_sees_no_credential_one_thread_and_no_open_file(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("echo"))
        hello = hear(engine, "hello")
        environment = Path(f"/proc/{hello['pid']}/environ").read_text()
        for seen in (environment, json.dumps(hello["environment"])):
            assert "hushhush" not in seen
        assert hello["environment"]["OMP_NUM_THREADS"] == "1"
        assert hello["environment"]["PYTHONHASHSEED"] == "0"
        assert set(hello["environment"]) < ALLOWED
        assert hello["descriptors"] == [0, 1, 2, 3]  # the last is the listing itself

    def test_messages_of_a_worker_keep_their_order_both_ways(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        setup = behaving("echo")
        for worker_id in ("w1", "w2"):
            engine.start(worker_id, setup)
        for number in range(100):
            for worker_id in ("w1", "w2"):
                engine.send(worker_id, {"kind": "order", "number": number})
        said = hear_until(engine, lambda said: len(said) >= 202)
        for worker_id in ("w1", "w2"):
            heard = [one for who, one in said if who == worker_id]
            assert [one["heard"]["number"] for one in heard[1:]] == list(range(100))

    def test_big_messages_and_all_characters_go_both_ways(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("echo"))
        text = 'é\u2028"\\\n\0🅿' * 100_000
        engine.send("w1", {"kind": "order", "text": text})
        assert hear(engine, "echo")["heard"]["text"] == text

    def test_what_a_worker_said_before_its_end_comes_before_its_loss(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("exits"))
        said = hear_until(engine, lambda said: "lost" in kinds_of(said))
        assert kinds_of(said) == ["last words", "lost"]
        lost = said[-1][1]
        assert "exit code 7" in lost["reason"]
        assert lost["tail"] == "out of memory"
        assert Path(lost["log"]).read_text() == "out of memory"
        hears_nothing_more(engine, "w1")

    def test_a_killed_worker_is_lost_with_the_signal(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("stuck"))
        os.kill(hear(engine, "hello")["pid"], signal.SIGKILL)
        assert "SIGKILL" in hear(engine, "lost")["reason"]

    @pytest.mark.parametrize("line", GARBAGE.values(), ids=GARBAGE)
    def test_a_worker_that_speaks_no_protocol_is_ended(
        self, engine: Engine, behaving: Callable[..., Path], line: str
    ) -> None:
        engine.start("w1", behaving("garbage", line=line))
        assert "no message" in hear(engine, "lost")["reason"]
        hears_nothing_more(engine, "w1")

    def test_a_line_without_end_ends_its_worker(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("endless_line"))
        assert "a line above" in hear(engine, "lost")["reason"]

    def test_one_that_floods_keeps_nobody_from_being_heard_and_its_log_is_bounded(
        self, engine: Engine, behaving: Callable[..., Path], logs: Path
    ) -> None:
        engine.start("w1", behaving("floods"))
        engine.start("w2", behaving("echo"))
        said = hear_until(engine, lambda said: "hello" in kinds_of(said, "w2"))
        engine.send("w2", {"kind": "order"})
        said += hear_until(engine, lambda said: "echo" in kinds_of(said, "w2"))
        said += hear_until(engine, lambda said: len(kinds_of(said)) > 2000)
        numbers = [one["number"] for who, one in said if who == "w1"]
        assert numbers == list(range(len(numbers)))  # nothing is dropped
        engine.stop("w1")
        hears_nothing_more(engine, "w1")
        sizes = [path.stat().st_size for path in logs.glob("w1*")]
        assert len(sizes) == 2
        assert sum(sizes) <= 2 << 20

    def test_one_that_never_reads_holds_up_nobody_and_is_lost_in_the_end(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("never_reads"))
        engine.start("w2", behaving("echo"))
        hear_until(engine, lambda said: len(said) == 2)
        for _ in range(40):
            engine.send("w1", {"kind": "order", "text": "x" * (1 << 19)})
        engine.send("w2", {"kind": "order"})
        said = hear_until(engine, lambda said: len(said) == 2)
        assert (kinds_of(said), kinds_of(said, "w2")) == (["lost"], ["echo"])
        assert "unread" in "".join(message.get("reason", "") for _, message in said)

    def test_one_that_closed_its_ears_is_lost_when_it_is_spoken_to(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        engine.start("w1", behaving("closes_ears"))
        hear(engine, "hello")
        engine.send("w1", {"kind": "order"})
        assert "no longer listens" in hear(engine, "lost")["reason"]

    @pytest.mark.parametrize("ends", ["stop", "close", "kill"])
    def test_with_a_worker_end_its_children_wherever_they_moved(
        self, engine: Engine, behaving: Callable[..., Path], ends: str
    ) -> None:
        engine.start("w1", behaving("has_children"))
        hello = hear(engine, "hello")
        if ends == "kill":
            os.kill(hello["pid"], signal.SIGKILL)
            hear(engine, "lost")
        elif ends == "stop":
            engine.stop("w1")
        else:
            engine.close()
        wait_until(lambda: all(is_gone(one) for one in (hello["pid"], *hello["children"])), 10)

    def test_a_stuck_and_a_paused_worker_are_stopped_like_any_other(
        self, engine: Engine, behaving: Callable[..., Path]
    ) -> None:
        for worker_id in ("w1", "w2"):
            engine.start(worker_id, behaving("stuck"))
        said = hear_until(engine, lambda said: len(said) == 2)
        stuck, paused = (message["pid"] for _, message in said)
        os.kill(paused, signal.SIGSTOP)
        for worker_id in ("w1", "w2"):
            engine.stop(worker_id)
        assert is_gone(stuck)
        assert is_gone(paused)

    @pytest.mark.parametrize("worker_id", ODD_NAMES)
    def test_any_worker_id_has_a_log_of_its_own_below_the_folder(
        self, engine: Engine, behaving: Callable[..., Path], logs: Path, worker_id: str
    ) -> None:
        engine.start(worker_id, behaving("exits"))
        lost = hear(engine, "lost", worker_id)
        assert Path(lost["log"]).parent == logs
        assert Path(lost["log"]).read_text() == "out of memory"

    def test_a_worker_that_cannot_start_is_refused_in_words(
        self, broken: Engine, behaving: Callable[..., Path]
    ) -> None:
        try:
            broken.start("w1", behaving("echo"))
            reason = hear(broken, "lost")["reason"]
        except SettingError as error:
            reason = str(error)
        assert "does not start" in reason

    def test_nothing_is_left_over(self, engine: Engine, behaving: Callable[..., Path]) -> None:
        """No process, no thread, no open file: each round leaves what the first one left."""
        left: list[Left] = []
        marks: set[bytes] = set()
        for number in range(3):
            for name in ("echo", "exits", "has_children"):
                engine.start(f"{name}-{number}", behaving(name))
            # two say hello, one says its last words and is lost
            said = hear_until(engine, lambda said: len(said) == 4)
            marks |= {
                one["environment"]["PARCEL_ASSETS_MARK"].encode()
                for _, one in said
                if "environment" in one
            }
            for name in ("echo", "has_children"):
                engine.stop(f"{name}-{number}")
            left.append(self._left(marks, expected=left[0] if left else None))
        assert left == [left[0]] * 3, left
        assert left[0][2] == set()

    def _left(self, marks: set[bytes], expected: Left | None) -> Left:
        """Return open files, threads and marked processes; a busy machine closes some late."""
        end = time.monotonic() + 10
        while True:
            files = len(list(Path("/proc/self/fd").iterdir()))
            found = (files, threading.active_count(), marked_processes(marks))
            if expected is None or expected == found or time.monotonic() > end:
                return found
            time.sleep(0.1)


def marked_processes(marks: set[bytes]) -> set[int]:
    """Return the live processes that bear one of the marks."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes()
        except OSError:
            continue
        if any(mark in variables for mark in marks) and not is_gone(int(folder.name)):
            found.add(int(folder.name))
    return found


ALLOWED = {
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "SYSTEMROOT", "CUDA_VISIBLE_DEVICES", "PARCEL_ASSETS_IMAGE",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PARCEL_ASSETS_MARK",
}  # fmt: skip
