"""Where a drill takes place: fresh data folders, real runs in processes of their own, clean-up.

Every drill gets a copy of one prepared folder: archive drawn, plan pinned and frozen, shipments
split. A run is the usual command, through Dagster, into that folder's own instance. Nothing that a
drill starts outlives its ground.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from parcel_assets.core.evidence import SplitBody
from parcel_assets.core.plan import SnapshotPlan
from parcel_assets.core.ports import Ports
from parcel_assets.core.stage import Stage
from parcel_assets.drills.judge import Scene
from parcel_assets.drills.records import DrillError, Injection
from parcel_assets.drills.watch import Watch, processes_on, wait_for
from parcel_assets.steps.admission import load_plan
from parcel_assets.steps.data import pin_archive, pin_snapshot, register_plan, split_shipments
from parcel_assets.wiring import Settings, draw_sample, find_plan, open_ports, write_pin, write_text

OUTSIDE = Path(__file__).parent / "outside"
COMMAND = (sys.executable, "-P", "-c", "from parcel_assets.cli import app; app()")
REVISION = "drill"
SEED, SHIPMENTS = 85, 150
GONE_SECONDS = 10.0

Tell = Callable[[str], None]


class Run:
    """One command at work in a process of its own; `out` may take what it writes to stdout."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        out: BinaryIO | None = None,
    ) -> None:
        self._log = log
        with log.open("ab") as file:
            self._start = file.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own commands, no shell
                list(words),
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=out or file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        """The id of the run's process, the coordinator."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """What it printed so far."""
        with self._log.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    def wait(self, seconds: float = 300.0) -> int:
        """Wait for its end and return the exit code; raises DrillError if it does not end."""
        wait_for(lambda: self.code is not None, "end of the run", seconds)
        assert self.code is not None
        return self.code

    def until(self, ready: Callable[[], object], words: str) -> None:
        """Wait until something is so while the run goes on.

        Raises DrillError where the run ends before: what was to be disturbed is over.
        """

        def ready_or_over() -> bool:
            if ready():
                return True
            if self.code is not None:
                raise DrillError(
                    f"the run's end ({self.code}) before {words}",
                    expected=words,
                    where=str(self._log),
                    remedy="Read the last lines of the log; nothing could be injected.",
                )
            return False

        wait_for(ready_or_over, words)

    def say(self, message: Mapping[str, Any]) -> None:
        """Send one JSON line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(message)).encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End the process without a word, and collect it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


class Ground:
    """One data folder at the disposal of one drill."""

    def __init__(self, data: Path, base: "Base", tell: Tell) -> None:
        self.data = data
        self.base = base
        self.tell = tell
        self.settings = Settings.read({}, data=data)
        self.ports: Ports = open_ports(self.settings)
        self.outside = data / "outside"  # what the incident brings along
        self.outside.mkdir(parents=True, exist_ok=True)
        self._runs: list[Run] = []

    # ---- plans and files ------------------------------------------------------------------------

    def bring(self, name: str, new_name: str | None = None, **texts: str) -> Path:
        """Copy a file of `outside` to where runs import from, with words in it replaced."""
        text = (OUTSIDE / name).read_text("utf-8")
        for word, value in texts.items():
            text = text.replace(word, value)
        target = self.outside / (new_name or name)
        write_text(target, text)
        return target

    def register(self, revision: str, source: str = "drill.toml", **changes: str) -> None:
        """Pin and freeze a plan of `outside` under a revision, lines replaced as told."""
        path = self.settings.plans / f"{revision}.toml"
        text = (OUTSIDE / source).read_text("utf-8")
        for line, new in changes.items():
            if line not in text:
                raise ValueError(f"{source} has no {line!r}")
            text = text.replace(line, new)
        write_text(path, text)
        freeze(path, self)

    # ---- runs -----------------------------------------------------------------------------------

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a run: this data folder, `outside` importable, no settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PARCEL_ASSETS_")}
        kept.pop("DAGSTER_HOME", None)
        path = os.pathsep.join(filter(None, [str(self.outside), os.environ.get("PYTHONPATH", "")]))
        return kept | {"PARCEL_ASSETS_DATA": str(self.data), "PYTHONPATH": path} | more

    def run(
        self,
        revision: str = REVISION,
        *,
        workers: int = 2,
        until: Stage | None = Stage.SEARCH,
        **environment: str,
    ) -> Run:
        """Start a run of a revision, to the end of its search unless told otherwise."""
        words = ["--workers", str(workers), "run", revision]
        return self.command(*words, *(["--until", str(until)] if until else []), **environment)

    def command(self, *words: str, **environment: str) -> Run:
        """Start any `parcel-assets` command in this folder."""
        return self.start([*COMMAND, *words], environment)

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] | None = None,
        out: BinaryIO | None = None,
    ) -> Run:
        """Start any command in this folder's environment."""
        log = self.data / f"command-{len(self._runs) + 1}.log"
        run = Run(words, self.environment(**environment or {}), log, out)
        self._runs.append(run)
        return run

    def watch(self, revision: str = REVISION) -> Watch:
        """Return a look at a revision's ledger."""
        return Watch(revision, self.ports.ledger)

    def scene(self, revision: str = REVISION) -> Scene:
        """Return what the ledger says of a revision."""
        plan, _ = load_plan(revision, self.ports)
        return Scene(plan, self.ports.ledger.events(revision))

    def inject(self, words: str, watch: Watch) -> Injection:
        """Note an act from outside, to be called right before it."""
        events = watch.look()
        self.tell(f"injected: {words}")
        return Injection(words, len(events), self.ports.ledger.now())

    # ---- clean-up -------------------------------------------------------------------------------

    def left_running(self) -> list[int]:
        """Return what still runs on this folder ten seconds later, or nothing as soon as so."""
        end = time.monotonic() + GONE_SECONDS
        while (living := processes_on(self.data)) and time.monotonic() < end:
            time.sleep(0.1)
        return living

    def close(self) -> None:
        """End everything that was started here."""
        for run in self._runs:
            run.kill()
        for process in self.left_running():  # a worker that did not die with its coordinator
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


class Base:
    """The prepared folder, drawn once, and the undisturbed run that drills compare with."""

    def __init__(self, root: Path, tell: Tell) -> None:
        self.root = root
        self.tell = tell
        self._folder = root / ".base"
        self._undisturbed: Scene | None = None

    def _prepare(self) -> None:
        if self._folder.exists():
            return
        self.tell("drawing and splitting the small archive")
        ground = Ground(self._folder, self, self.tell)
        draw(self._folder / "archives" / "drill", SHIPMENTS)
        ground.register(REVISION)
        for step in (pin_snapshot, split_shipments):
            step(REVISION, ground.ports)

    @contextmanager
    def ground(self, name: str, *, empty: bool = False) -> Iterator[Ground]:
        """Give a fresh data folder of a name, prepared unless it shall be empty; cleaned up after.

        What runs in it is ended whatever happens. The folder stays for whoever keeps the root.
        """
        data = self.root / name
        if not empty:
            self._prepare()
            shutil.copytree(self._folder, data)
        ground = Ground(data, self, self.tell)
        try:
            yield ground
        finally:
            ground.close()

    @property
    def undisturbed(self) -> str:
        """The digest of the trial table when nobody disturbs the search."""
        return self.undisturbed_scene().table

    def undisturbed_scene(self) -> Scene:
        """Return what a search leaves when nobody disturbs it; run once, when first asked for."""
        if self._undisturbed is None:
            self.tell("running the search undisturbed, to compare with")
            with self.ground("undisturbed") as ground:
                run = ground.run()
                if run.wait() != 0:
                    raise DrillError(
                        f"an undisturbed run that ends with {run.code}: {run.output[-600:]}",
                        expected="exit code 0",
                        where=str(ground.data),
                        remedy="Without it nothing can be compared. Read its log.",
                    )
                self._undisturbed = ground.scene()
        return self._undisturbed

    def other_parts(self, name: str, *, shipments: int = SHIPMENTS, key: str = "") -> SplitBody:
        """Return the split that another archive or another key would give, in a folder aside."""
        with self.ground(name, empty=True) as ground:
            draw(ground.data / "archives" / "drill", shipments)
            ground.register(
                REVISION, **({'key = "drill parcels"': f'key = "{key}"'} if key else {})
            )
            pin_snapshot(REVISION, ground.ports)
            return SplitBody.model_validate(split_shipments(REVISION, ground.ports).body)

    def path_of(self, name: str, digest: str) -> Path:
        """Return the path of an object in a folder made by `other_parts`."""
        return open_ports(Settings.read({}, data=self.root / name)).store.path(digest)


def draw(folder: Path, shipments: int, seed: int = SEED) -> None:
    """Draw the sample archive."""
    processes = min(4, os.cpu_count() or 1)
    draw_sample(folder, seed=seed, shipments=shipments, processes=processes, progress=None)


def freeze(path: Path, ground: Ground) -> None:
    """Pin a plan's archive, write the pin into its file, and freeze the plan."""
    found = find_plan(str(path), ground.settings)
    section: SnapshotPlan = found.plan.snapshot
    side = found.plan.preprocess.image_size_pixels
    write_pin(path, pin_archive(section, side, ground.ports).snapshot_digest)
    found = find_plan(str(path), ground.settings)
    register_plan(found.revision, found.plan, ground.ports)
