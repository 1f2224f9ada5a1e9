"""What each of two users does in a process of their own: search, or open with a key."""

import json
import sys
from pathlib import Path

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.vault_age import AgeVault
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.steps import selection
from parcel_assets.steps.evaluation import evaluate_final
from parcel_assets.steps.selection import report_slices, rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.steps.desk import REVISION, final_ports, make_desk

TRAINER = "parcel_assets_tests.steps.place_trainer:PlaceTrainer"


def vault_of(folder: Path, recipient: str, key: Path | None, *, without_l3: bool) -> AgeVault:
    return AgeVault(
        folder / "vault",
        folder / "keys",
        folder / "store",
        trainer=TRAINER,
        recipient=recipient,
        key=key,
        without_l3=without_l3,
    )


def ledger_of(folder: Path) -> SqlLedger:
    return SqlLedger(f"sqlite:///{folder / 'ledger.sqlite'}")


def search(folder: Path, recipient: str) -> str:
    """Seal and search up to the slice report, and be refused the opening."""
    vault = vault_of(folder, recipient, None, without_l3=False)
    desk = make_desk(folder, ledger=ledger_of(folder), vault=vault)
    # stands in for training
    selection.run_tasks = desk.run_tasks  # type: ignore[attr-defined]
    for step in (validate_table, rerun_selected, report_slices):
        step(desk.revision, desk.ports)
    return "searched"


def open_with(
    folder: Path, recipient: str, key: Path | None, *, without_l3: bool
) -> dict[str, object]:
    ports = final_ports(
        folder, ledger_of(folder), vault_of(folder, recipient, key, without_l3=without_l3)
    )
    return dict(evaluate_final(REVISION, ports).body)


def main(what: str, folder: str, recipient: str, *further: str) -> None:
    key = Path(further[0]) if further else None
    try:
        told: object = (
            search(Path(folder), recipient)
            if what == "search"
            else open_with(Path(folder), recipient, key, without_l3="--without-l3" in further)
        )
    except ParcelAssetsError as error:
        told = error.as_fields()
    sys.stdout.write(json.dumps(told, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
