"""Makes a key-holder's own age key, in one file that only its owner reads.

Where the file is kept, and who hears of the recipient, is left to the key-holder.
"""

from pathlib import Path

import pyrage  # type: ignore[import-untyped]  # ships no types

from parcel_assets.adapters.vault_age_files import create_file
from parcel_assets.core.errors import SettingError


def make_label_key(path: Path) -> str:
    """Write a new private key with mode 600; return its public half, age1….

    Raises SettingError where the file exists already or cannot be written.
    """
    identity = pyrage.x25519.Identity.generate()
    try:
        create_file(path, f"{identity}\n".encode(), mode=0o600)
    except OSError as error:
        raise SettingError(
            f"a file that cannot be made ({error.strerror or error})",
            expected="a new name in a folder of the key-holder's own; a key is never overwritten",
            where=str(path),
            remedy="Name another file with --out.",
        ) from error
    return str(identity.to_public())
