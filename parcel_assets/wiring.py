"""The composition root: settings become adapters. No other file names a technology.

Every adapter is imported when it is first used, so that loading this file (and with it Dagster's
code location and the command line) costs no torch and no Great Expectations. What a search may
answer is no setting: that stands in the plan.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from parcel_assets.adapters import plan_folder
from parcel_assets.adapters.archive_watch import TableRules, archive_version, look_at_archive
from parcel_assets.adapters.ledger_sql_owner import host_name, process_lives, process_start
from parcel_assets.adapters.plan_folder import PlanFile, write_pin, write_text
from parcel_assets.core.errors import SettingError
from parcel_assets.core.plan import Plan, SnapshotPlan
from parcel_assets.core.ports import (
    ArchiveSource,
    Engine,
    Ledger,
    Pictures,
    Ports,
    Registry,
    Sampler,
    ServingBench,
    Signer,
    Store,
    TableValidator,
    Trainer,
    TrainingData,
    Vault,
)
from parcel_assets.core.sketch import ArchiveSketch, LabelTable, sketch_archive
from parcel_assets.core.timestamps import Timestamper
from parcel_assets.settings import REPOSITORY, Settings

__all__ = [
    "REPOSITORY", "PlanFile", "Settings", "TableRules", "archive_version", "copy_plan",
    "draw_sample", "find_plan", "host_name", "list_plans", "look_at_archive", "make_label_key",
    "open_charts", "open_ledger", "open_ports", "open_source", "open_store", "open_trainer",
    "plan_file_of", "process_lives", "process_start", "read_labels", "shipped_plan", "sign_with",
    "sketch_folder", "write_pin", "write_text",
]  # fmt: skip

Port = TypeVar("Port")
Notify = Callable[[str, Mapping[str, Any]], None]


class _OnFirstUse:
    """Stands for an adapter until one of its names is asked for, and then builds it once."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._built: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._built is None:
            self._built = self._build()
        return getattr(self._built, name)


def _on_first_use(build: Callable[[], Port]) -> Port:
    return cast("Port", _OnFirstUse(build))


def open_ports(settings: Settings, notify: Notify | None = None, *, creates: bool = True) -> Ports:
    """Return all ports under the settings; no adapter is imported before its first use.

    A command about searches that are there `creates` nothing: a wrong folder is no new ledger.
    Raises SettingError where a file lies in a folder's place.
    """
    settings.require_kinds()
    return Ports(
        ledger=_on_first_use(lambda: open_ledger(settings, creates=creates)),
        store=_on_first_use(lambda: open_store(settings)),
        open_source=lambda section, side_pixels: open_source(settings, section, side_pixels),
        open_engine=lambda: _engine(settings),
        sampler=_sampler,
        measure_identity=_measure_identity,
        validator=_on_first_use(_validator),
        vault=_on_first_use(lambda: _vault(settings)),
        signer=_on_first_use(lambda: _signer(settings)),
        registry=_on_first_use(lambda: _registry(settings)),
        serving=_on_first_use(_serving),
        pictures=_on_first_use(_pictures),
        verify_packet=_verify_packet,
        packets=settings.packets,
        custodian=settings.custodian,
        workers=settings.workers,
        render_report=_render_report,
        signature_holds=_signature_holds,
        timestamper=_timestamper(settings),
        timestamps_declined=settings.timestamps_declined,
        notify=notify or (lambda _kind, _facts: None),
    )


# ---- one line of technology per port ------------------------------------------------------------


def open_ledger(settings: Settings, *, creates: bool = True) -> Ledger:
    """Return the ledger; without `creates` the one that is there, or an empty one kept nowhere."""
    if not creates:
        from parcel_assets.adapters.ledger_sql_find import find_ledger

        return find_ledger(settings.ledger_url)
    from parcel_assets.adapters.ledger_sql import SqlLedger

    settings.data.mkdir(parents=True, exist_ok=True)
    return SqlLedger(settings.ledger_url)


def open_store(settings: Settings) -> Store:
    """Return the object store."""
    from parcel_assets.adapters.store_files import FileStore

    return FileStore(settings.store)


def open_source(settings: Settings, section: SnapshotPlan, side_pixels: int) -> ArchiveSource:
    """Return the archive that a plan's snapshot section names."""
    from parcel_assets.adapters.source_folder import FolderSource

    return FolderSource(section, settings.data / section.location, side_pixels)


def open_trainer() -> Trainer:
    """Return the trainer; worker processes call this, nobody else needs it."""
    from parcel_assets.adapters.trainer_lightning import LightningTrainer

    return LightningTrainer()


def _engine(settings: Settings) -> Engine:
    if settings.engine == "local":
        from parcel_assets.adapters.engine_local import LocalEngine

        return LocalEngine(settings.logs)
    _require_ray()
    from parcel_assets.adapters.engine_cluster import OWN
    from parcel_assets.adapters.engine_ray import RayEngine

    return RayEngine(
        settings.logs,
        address=settings.engine.partition(":")[2] or OWN,
        workers=settings.workers,
        accelerators=settings.accelerators_per_worker,
    )


def _require_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise SettingError(
            "no Ray in this environment",
            expected="the extra `ray` of parcel_assets",
            where="PARCEL_ASSETS_ENGINE",
            remedy="pip install 'parcel_assets[ray]', or set PARCEL_ASSETS_ENGINE=local.",
        )


def _sampler(name: str) -> Sampler:
    from parcel_assets.adapters.sampler_optuna import OptunaSampler

    return OptunaSampler(name)


def _measure_identity(plan: Plan, data: TrainingData) -> dict[str, str]:
    from parcel_assets.adapters.identity_host import measure_identity

    return measure_identity(plan, data)


def _validator() -> TableValidator:
    from parcel_assets.adapters.validator_expectations import ExpectationsValidator

    return ExpectationsValidator()


def _vault(settings: Settings) -> Vault:
    from parcel_assets.adapters.vault_age import AgeVault

    places = (settings.vault, settings.keys, settings.store)
    return AgeVault(
        *places,
        recipient=settings.holdout_recipient,
        key=settings.holdout_key,
        without_l3=settings.holdout_without_l3,
    )


def _signer(settings: Settings) -> Signer:
    from parcel_assets.adapters.signer_ecdsa import EcdsaSigner

    return EcdsaSigner(settings.keys)


def _timestamper(settings: Settings) -> Timestamper | None:
    if not (settings.timestamp_url and settings.timestamp_root):
        return None
    from parcel_assets.adapters.timestamp_rfc3161 import Rfc3161Timestamper

    return Rfc3161Timestamper(settings.timestamp_url, settings.timestamp_root)


def _registry(settings: Settings) -> Registry:
    from parcel_assets.adapters.registry_file import FileRegistry

    return FileRegistry(settings.registry)


def _serving() -> ServingBench:
    from parcel_assets.adapters.serving_process import ServingProcess

    return ServingProcess()


def _pictures() -> Pictures:
    from parcel_assets.adapters.pictures_pillow import PillowPictures

    return PillowPictures()


def _render_report(files: Mapping[str, bytes]) -> bytes:
    from parcel_assets.adapters.report_html import render_report

    return render_report(files)


def _verify_packet(folder: Path, digest: str | None, public_key: bytes | None) -> dict[str, Any]:
    from parcel_assets.adapters.packet_folder import verify_packet

    return verify_packet(folder, digest, public_key)


def _signature_holds(public_key: str, data: bytes, signature: bytes) -> bool:
    from parcel_assets.adapters.approval_keys import signature_holds

    return signature_holds(public_key, data, signature)


def sign_with(private_key: Path, data: bytes) -> bytes:
    """Return a person's signature of the bytes, by the key in a file of theirs."""
    from parcel_assets.adapters.approval_keys import sign_with as sign

    return sign(private_key, data)


def make_label_key(path: Path) -> str:
    """Write a key-holder's new private key; return the recipient to which labels are sealed."""
    from parcel_assets.adapters.vault_age_key import make_label_key as make

    return make(path)


# ---- folders that the command line, the sensors and the demo look at ----------------------------


def find_plan(argument: str, settings: Settings) -> PlanFile:
    """Return the plan that a path, or the name of a revision in the plans folder, stands for."""
    return plan_folder.find_plan(argument, settings.plans)


def shipped_plan(revision: str, settings: Settings) -> PlanFile:
    """Return a plan of the sample archives; a plans folder that lacks it gets a copy."""
    path = settings.plans / f"{revision}.toml"
    if not path.is_file():
        plan_folder.write_copy(REPOSITORY / "data" / "plans" / path.name, path, {})
    return plan_folder.read_plan_file(path)


def plan_file_of(revision: str, settings: Settings) -> PlanFile | None:
    """Return the plan file of a revision in the plans folder, or None where there is none."""
    path = settings.plans / f"{revision}.toml"
    return plan_folder.read_plan_file(path) if path.is_file() else None


def list_plans(settings: Settings) -> tuple[Path, ...]:
    """Return the plan files in the plans folder."""
    return plan_folder.list_plans(settings.plans)


def copy_plan(
    shipped: PlanFile, revision: str, fields: Mapping[str, str], settings: Settings
) -> PlanFile:
    """Return the plan under another revision, with other texts in its snapshot section."""
    path = settings.plans / f"{revision}.toml"
    plan_folder.write_copy(shipped.path, path, fields)
    return plan_folder.read_plan_file(path)


def sketch_folder(folder: Path, table: str | None = None) -> ArchiveSketch:
    """Return a first look at an archive folder, for a plan to start from."""
    from parcel_assets.adapters.archive_table import read_label_table

    return sketch_archive(read_label_table(folder, table))


def read_labels(folder: Path, table: str) -> LabelTable:
    """Return an archive's label table as text, whatever its columns are called."""
    from parcel_assets.adapters.archive_table import read_label_table

    return read_label_table(folder, table)


def draw_sample(
    folder: Path,
    *,
    seed: int,
    shipments: int,
    processes: int,
    progress: Callable[[int, int], None] | None,
) -> Mapping[str, Any]:
    """Draw the sample archive and return what it holds; a folder that holds it already is kept."""
    from parcel_assets.adapters.sample_archive import draw_sample_archive

    summary = draw_sample_archive(
        folder, seed=seed, shipments=shipments, processes=processes, progress=progress
    )
    return asdict(summary)


def open_charts() -> ModuleType:
    """Return the module that draws charts as PNG bytes."""
    from parcel_assets.adapters import plots_matplotlib

    return plots_matplotlib
