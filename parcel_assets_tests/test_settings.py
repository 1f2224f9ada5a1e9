"""Settings and wiring: where things are kept, and that nothing is opened before it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from parcel_assets.core.errors import SettingError, refused_by_the_system
from parcel_assets.wiring import Settings, open_ports


def test_everything_lies_in_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    settings = Settings.read({"PARCEL_ASSETS_DATA": str(tmp_path)})
    assert settings.packets == tmp_path / "packets"
    assert settings.dagster_home == tmp_path / "dagster"
    assert settings.ledger_url == f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    assert 1 <= settings.workers <= 2
    moved = Settings.read(
        {"PARCEL_ASSETS_DATA": str(tmp_path), "PARCEL_ASSETS_KEYS": "/keys", "DAGSTER_HOME": "/d"}
    )
    assert (moved.keys, moved.dagster_home) == (Path("/keys"), Path("/d"))


def test_arguments_win_over_variables(tmp_path: Path) -> None:
    environment = {"PARCEL_ASSETS_DATA": "/elsewhere", "PARCEL_ASSETS_WORKERS": "7"}
    settings = Settings.read(environment, data=tmp_path, workers=3)
    assert (settings.data, settings.workers) == (tmp_path, 3)


def test_a_child_process_reads_the_same_settings(tmp_path: Path) -> None:
    settings = Settings.read({}, data=tmp_path, workers=3)
    assert Settings.read(settings.environment()) == settings


@pytest.mark.parametrize(
    "url",
    ["https://tsa.example/tsr", "http://127.0.0.1:81/t", "http://[::1]:8", "http://localhost"],
)
def test_a_timestamp_authority_is_an_address_with_the_root_it_signs_under(
    tmp_path: Path, url: str
) -> None:
    said = {"PARCEL_ASSETS_TIMESTAMP_URL": url}
    with pytest.raises(SettingError, match="no root certificate"):
        Settings.read(said, data=tmp_path)
    settings = Settings.read(said | {"PARCEL_ASSETS_TIMESTAMP_ROOT": "/r.pem"}, data=tmp_path)
    assert (settings.timestamp_url, settings.timestamp_root) == (url, Path("/r.pem"))
    ports = open_ports(settings)
    assert ports.timestamper is not None
    assert not ports.timestamps_declined


@pytest.mark.parametrize(
    "url",
    [
        "http://tsa.example/tsr",  # anybody on the way could answer
        "http://127.0.0.1.example/",
        "http://localhost@tsa.example/",
        "https://ada:secret@tsa.example/",
        "ftp://tsa.example/",
        "file:///etc/passwd",
        "https://",
        "https://tsa.example:port/",
        "http://[::1",
        "tsa.example",
    ],
)
def test_no_other_address_is_asked_for_timestamps(tmp_path: Path, url: str) -> None:
    said = {"PARCEL_ASSETS_TIMESTAMP_URL": url, "PARCEL_ASSETS_TIMESTAMP_ROOT": "/r.pem"}
    with pytest.raises(SettingError, match="https://") as refused:
        Settings.read(said, data=tmp_path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("word", "declined"), [(None, False), ("", False), ("none", True)])
def test_going_on_without_timestamps_is_a_word_of_its_own(
    tmp_path: Path, word: str | None, declined: bool
) -> None:
    said = {} if word is None else {"PARCEL_ASSETS_TIMESTAMP_URL": word}
    ports = open_ports(Settings.read(said, data=tmp_path))
    assert (ports.timestamper, ports.timestamps_declined) == (None, declined)


@pytest.mark.parametrize("engine", ["local", "ray", "ray:head-1.depot:6379", "ray:192.0.2.7:6379"])
def test_an_engine_is_chosen_by_variable_or_argument_and_told_to_children(
    tmp_path: Path, engine: str
) -> None:
    chosen = Settings.read({"PARCEL_ASSETS_ENGINE": engine}, data=tmp_path)
    assert chosen.engine == engine
    assert Settings.read({"PARCEL_ASSETS_ENGINE": "ray"}, data=tmp_path, engine=engine) == chosen
    assert Settings.read(chosen.environment()) == chosen


@pytest.mark.parametrize(
    "engine", ["Ray", "ray:auto", "ray://head:10001", "ray:", "ray:h", "slurm"]
)
def test_an_engine_that_is_none_is_refused(engine: str) -> None:
    with pytest.raises(SettingError, match="ray:HOST:PORT"):
        Settings.read({"PARCEL_ASSETS_ENGINE": engine})


@pytest.mark.parametrize("share", ["-1", "half", "1.5", "nan", "1e3"])
def test_a_share_of_an_accelerator_that_is_none_is_refused(share: str) -> None:
    name = "PARCEL_ASSETS_ACCELERATORS_PER_WORKER"
    with pytest.raises(SettingError, match=name):
        Settings.read({name: share})
    assert Settings.read({name: "0.25"}).accelerators_per_worker == 0.25


def test_without_ray_the_refusal_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    ports = open_ports(Settings.read({}, data=tmp_path, engine="ray"))
    with pytest.raises(SettingError, match=r"pip install 'parcel_assets\[ray\]'"):
        ports.open_engine()


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1.5"])
def test_a_number_of_workers_that_is_none_is_refused(workers: str) -> None:
    with pytest.raises(SettingError, match="PARCEL_ASSETS_WORKERS"):
        Settings.read({"PARCEL_ASSETS_WORKERS": workers})


def test_opening_ports_writes_nothing_and_reads_nothing(tmp_path: Path) -> None:
    open_ports(Settings.read({}, data=tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_telemetry_is_off_before_any_library_is_imported() -> None:
    program = (
        "import parcel_assets.wiring, os, sys\n"
        "assert 'dagster' not in sys.modules and 'great_expectations' not in sys.modules\n"
        "print(os.environ['DAGSTER_DISABLE_TELEMETRY'], os.environ['GX_ANALYTICS_ENABLED'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "false"]


def test_a_data_folder_that_the_ledger_s_address_would_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="question mark"):
        Settings.read({}, data=tmp_path / "what?")
    elsewhere = {"PARCEL_ASSETS_LEDGER_URL": f"sqlite:///{tmp_path / 'ledger.sqlite'}"}
    assert Settings.read(elsewhere, data=tmp_path / "what?").data == tmp_path / "what?"


FOLDERS = ("plans", "archives", "store", "keys", "vault", "custodian", "packets", "registry")
INSIDE = ("store/objects", "store/incoming", "store/attempts", "store/quarantine", "store/anchors")


@pytest.mark.parametrize("name", ["", *FOLDERS, "logs", "dagster", *INSIDE])
def test_a_file_in_a_folder_s_place_is_named(name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    wrong = data / name
    wrong.parent.mkdir(parents=True, exist_ok=True)
    wrong.write_text("")
    with pytest.raises(SettingError, match="found a file; expected a folder") as refused:
        open_ports(Settings.read({}, data=data))
    assert refused.value.where == str(wrong)


@pytest.mark.parametrize("name", ["keys/holdout.key", "keys/release_key.pem", "ledger.sqlite"])
def test_a_folder_in_a_file_s_place_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(SettingError, match="found a folder; expected a ") as refused:
        open_ports(Settings.read({}, data=tmp_path)).ledger.now()
    assert refused.value.where == str(tmp_path / name)


def test_everything_in_its_place_is_opened(tmp_path: Path) -> None:
    for name in (*FOLDERS, "logs", "dagster", *INSIDE):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "keys" / "holdout.key").touch()
    open_ports(Settings.read({}, data=tmp_path))


@pytest.mark.parametrize("kind", [IsADirectoryError, NotADirectoryError, FileExistsError])
def test_the_system_s_wrong_kind_is_not_called_a_full_disk(kind: type[OSError]) -> None:
    told = refused_by_the_system(kind(1, "a kind", "/there"))
    assert told.where == "/there"
    assert "room" not in told.expected
