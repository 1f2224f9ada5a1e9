"""When a private key's file is trusted: only its owner may read it, as ssh asks of its keys."""

from parcel_assets.core.errors import SettingError

OTHERS = 0o077  # what group and everybody may do, of a file's mode


def require_private(mode: int, where: str, otherwise: str = "") -> None:
    """Raise SettingError where others than its owner may read or write a key's file.

    `otherwise` says what to do where somebody may have read it.
    """
    if mode & OTHERS:
        raise SettingError(
            f"a private key that others may read (mode {mode & 0o777:o})",
            expected="a file that only its owner can read (mode 600)",
            where=where,
            remedy="If nobody else can have read it, `chmod 600` it. "
            + (otherwise or "Else make a new key."),
        )
