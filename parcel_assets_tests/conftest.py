"""What every test may rely on: no test leaves the process in another arithmetic than it found."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from parcel_assets.adapters import store_files
from parcel_assets_tests.commands import command
from parcel_assets_tests.postgres import Postgres, running_postgres

# how long an example takes says how busy the machine is, and nothing of the rule under test
settings.register_profile("untimed", parent=settings.default, deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Return the one PostgreSQL server of a test run, started when first asked for."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.fresh_url()


@pytest.fixture(scope="session")
def small_archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an archive drawn for searches that are killed."""
    folder = tmp_path_factory.mktemp("drawn")
    words = ("sample", str(folder / "archive"), "--shipments", "300", "--seed", "84")
    assert not command(folder / "data", *words).returncode
    yield folder / "archive"
    shutil.rmtree(folder)


@pytest.fixture
def unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that live for a second never reach the disk."""
    monkeypatch.setattr(store_files, "_flush", lambda file: file.flush())
    monkeypatch.setattr(store_files, "_flush_folder", lambda _folder: None)


@pytest.fixture(autouse=True)
def _usual_arithmetic() -> Iterator[None]:
    """Let small numbers be small again after a test that trained or served in this process."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(False)
