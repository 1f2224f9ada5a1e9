"""Opening the ledger of searches that are there: nothing is created, a read-only disk is enough."""

from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.ledger_sql_open import file_of
from parcel_assets.core.errors import SettingError


def find_ledger(url: str) -> SqlLedger:
    """Return the ledger at the URL; where a folder holds none yet, an empty one, kept nowhere.

    Raises SettingError where there is no folder that could hold it, or what is there is no ledger.
    """
    file = file_of(url)
    if file is None or file.exists():
        return SqlLedger(url, creates=False)
    if not file.parent.is_dir():
        raise SettingError(
            "a file" if file.parent.exists() else "no such folder",
            expected=f"a folder with {file.name}, which registering a plan makes",
            where=str(file.parent),
            remedy="Name the folder with --data (or PARCEL_ASSETS_DATA), or register a plan. "
            "Nothing was created.",
        )
    return SqlLedger("sqlite://")
