"""Reads a packet's folder without trust: plain files only, and exactly those that the list names.

Whether list and files are of any worth is asked by `packet_folder`.
"""

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from parcel_assets.core.packet import SUMS_FILE, UNLISTED, Fault

FILES_MAXIMUM = 10_000
BYTES_MAXIMUM = 4 << 30
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def read_folder(root: Path) -> tuple[dict[str, bytes], list[Fault]]:
    """Return the plain files below a folder by relative path, and whatever else lies there."""
    if root.is_symlink() or not root.is_dir():
        return {}, [Fault(SUMS_FILE, "cannot be read: the packet's folder is absent or a link")]
    files: dict[str, bytes] = {}
    faults: list[Fault] = []
    total = 0
    for path, mode in _walk(root):
        name = path.relative_to(root).as_posix()
        if stat.S_ISDIR(mode):
            if not any(path.iterdir()):
                faults.append(Fault(name, "is an empty folder that no list names"))
        elif not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
            faults.append(Fault(name, f"is {kind}"))
        elif len(files) >= FILES_MAXIMUM or total > BYTES_MAXIMUM:
            faults.append(Fault(name, "is more than a packet may hold"))
            break
        else:
            try:
                files[name] = _read_plain(path)
            except OSError as error:
                faults.append(Fault(name, f"cannot be read ({error.strerror})"))
                continue
            total += len(files[name])
    return files, faults


def _walk(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield everything below a folder with its mode, in order of name, following no link."""
    for path in sorted(root.iterdir()):
        mode = path.lstat().st_mode
        yield path, mode
        if stat.S_ISDIR(mode):
            yield from _walk(path)


def _read_plain(path: Path) -> bytes:
    """Return a file's bytes, refusing a link that took its place since it was looked at."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def listed_faults(files: dict[str, bytes]) -> list[Fault]:
    """Return every difference between the files and the list of digests."""
    if SUMS_FILE not in files:
        return [Fault(SUMS_FILE, "is absent")]
    listed: dict[str, str] = {}
    faults: list[Fault] = []
    try:
        lines = files[SUMS_FILE].decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return [Fault(SUMS_FILE, "is not UTF-8 text")]
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        name = match[2] if match else ""
        if match is None or not is_plain_name(name) or name in UNLISTED or name in listed:
            faults.append(Fault(SUMS_FILE, f"line {number} is no digest of a plain relative path"))
        else:
            listed[name] = match[1]
    folded = {name.casefold() for name in listed}
    if len(folded) != len(listed):
        faults.append(Fault(SUMS_FILE, "names two files that differ only in case"))
    for name in sorted(listed.keys() | files.keys() - UNLISTED):
        if name not in files:
            faults.append(Fault(name, "is listed and absent"))
        elif name not in listed:
            faults.append(Fault(name, "is in the folder and not in the list"))
        elif hashlib.sha256(files[name]).hexdigest() != listed[name]:
            faults.append(Fault(name, "was changed: its digest is not the listed one"))
    return faults


def is_plain_name(name: str) -> bool:
    """Say whether a listed name is relative, normal, and means the same on every machine."""
    path = PurePosixPath(name)
    return (
        name == unicodedata.normalize("NFC", name) == path.as_posix()
        and not path.is_absolute()
        and not any(part in {"..", "."} for part in path.parts)
        and not any(character in '\\:*?"<>|' or ord(character) < 32 for character in name)
    )
