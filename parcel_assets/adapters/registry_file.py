"""A registry that is a folder: one folder per model name, one read-only file per version.

Decides version numbers and that a version once written never changes. Whether a packet may be
registered at all is decided before, by the gates.
"""

import json
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parcel_assets.core.errors import RegistryError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VERSION = re.compile(r"version-(\d{6})\.json")
READ_ONLY = 0o444


class FileRegistry:
    """Registered versions below one folder, found again by any tool that reads JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def register(self, name: str, packet: Path, facts: Mapping[str, Any]) -> tuple[str, int]:
        """Register a verified packet; return the entry's place (relative) and its version.

        A packet digest that is registered already gives its old entry. Raises RegistryError for a
        name that is no plain name, or for facts without `packet_digest`.
        """
        if not _NAME.fullmatch(name):
            raise self._refusal(repr(name), "a plain lower-case name", "Rename the archive.")
        digest = facts.get("packet_digest")
        if not isinstance(digest, str) or not digest:
            raise self._refusal("no packet digest", "the verified packet's digest", "Verify first.")
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            known = self._versions(name)
            for version, entry in known.items():
                if entry["packet_digest"] == digest:
                    return self._place(name, version), version
            version = max(known, default=0) + 1
            entry = {"name": name, "version": version, "packet": packet.name, **dict(facts)}
            if _create(folder / f"version-{version:06d}.json", entry):
                return self._place(name, version), version

    def _versions(self, name: str) -> dict[int, dict[str, Any]]:
        found = {}
        for path in sorted((self._folder / name).glob("version-*.json")):
            match = _VERSION.fullmatch(path.name)
            if match is None:
                continue
            try:
                found[int(match[1])] = json.loads(path.read_bytes())
                _ = found[int(match[1])]["packet_digest"]
            except (KeyError, TypeError, ValueError) as error:
                raise self._refusal(
                    f"{name}/{path.name}, which is no registry entry ({error!r})",
                    "entries as this registry writes them",
                    "Restore the file from a copy; an entry is never edited.",
                ) from error
        return found

    @staticmethod
    def _place(name: str, version: int) -> str:
        return f"{name}/version-{version:06d}.json"

    def _refusal(self, found: str, expected: str, remedy: str) -> RegistryError:
        return RegistryError(found, expected=expected, where="model registry", remedy=remedy)


def _create(path: Path, entry: Mapping[str, Any]) -> bool:
    """Write a version whole under its name; return False where another writer took the number."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(entry, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(READ_ONLY)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True
