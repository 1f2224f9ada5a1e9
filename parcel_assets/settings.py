"""Settings: where a search keeps its things and how many workers it uses.

Read from the environment; none of it changes an answer, what does stands in the plan. Loading this
file also turns off every library's telemetry, before any of them is imported.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from parcel_assets.core.errors import SettingError

# nothing here reports to anybody; the libraries read these when they are imported
TELEMETRY_OFF = {
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # it prints nothing into what a command prints
    "ORT_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
for _name, _value in TELEMETRY_OFF.items():
    os.environ.setdefault(_name, _value)

STORE_FOLDERS = ("objects", "incoming", "attempts", "quarantine", "anchors")
NO_TIMESTAMPS = "none"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a search keeps its things, and how many workers; none of it changes an answer."""

    data: Path
    workers: int
    engine: str  # local, ray, or ray:HOST:PORT
    accelerators_per_worker: float
    ledger_url: str
    plans: Path
    archives: Path
    store: Path
    keys: Path
    vault: Path
    custodian: Path
    packets: Path
    registry: Path
    logs: Path
    dagster_home: Path
    holdout_recipient: str | None = None  # a key-holder's public key, or None: one made here
    holdout_key: Path | None = None  # the key-holder's own: given on the command line only
    holdout_without_l3: bool = False  # whoever opens says that less than L3 is enough
    timestamp_url: str | None = None  # of an authority outside
    timestamps_declined: bool = False  # the operator's word that a search goes on without one
    timestamp_root: Path | None = None  # PEM: the root under which that authority must sign

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        data: Path | str | None = None,
        workers: int | None = None,
        engine: str | None = None,
    ) -> Self:
        """Return the settings of an environment; arguments win over variables.

        Raises SettingError where a variable does not hold what it must.
        """
        env = os.environ if environment is None else environment
        root = Path(data or env.get("PARCEL_ASSETS_DATA") or _usual_data_folder()).absolute()

        if "?" in str(root) and not env.get("PARCEL_ASSETS_LEDGER_URL"):
            raise SettingError(
                "a path with a question mark",
                expected="a path that the ledger's address can hold",
                where=str(root),
                remedy="Choose another folder, or name the ledger by PARCEL_ASSETS_LEDGER_URL.",
            )

        def folder(name: str) -> Path:
            return Path(env.get(f"PARCEL_ASSETS_{name.upper()}") or root / name).absolute()

        return cls(
            data=root,
            workers=workers if workers is not None else _workers(env),
            engine=_engine(engine or env.get("PARCEL_ASSETS_ENGINE") or "local"),
            accelerators_per_worker=_accelerators(env),
            ledger_url=env.get("PARCEL_ASSETS_LEDGER_URL") or f"sqlite:///{root / 'ledger.sqlite'}",
            plans=folder("plans"),
            archives=folder("archives"),
            store=folder("store"),
            keys=folder("keys"),
            vault=folder("vault"),
            custodian=folder("custodian"),
            packets=folder("packets"),
            registry=folder("registry"),
            logs=folder("logs"),
            dagster_home=Path(env.get("DAGSTER_HOME") or root / "dagster").absolute(),
            holdout_recipient=_recipient(env),
            timestamp_url=_timestamp_url(env),
            timestamps_declined=_timestamp_text(env) == NO_TIMESTAMPS,
            timestamp_root=_timestamp_root(env),
        )

    def require_kinds(self) -> None:
        """Raise SettingError where a file lies in a folder's place, or a folder in a key's."""
        inside = (self.store / name for name in STORE_FOLDERS)
        own = (self.plans, self.archives, self.store, self.keys, self.vault, self.custodian)
        further = (self.packets, self.registry, self.logs, self.dagster_home)
        for folder in (self.data, *own, *further, *inside):
            if folder.exists() and not folder.is_dir():
                raise _wrong_kind("a file", "a folder", folder)
        for key in sorted(self.keys.glob("*.*")) if self.keys.is_dir() else ():
            if key.is_dir():
                raise _wrong_kind("a folder", "a key's file", key)

    def environment(self) -> dict[str, str]:
        """Return the variables that make a child process read these same settings."""
        return {
            "PARCEL_ASSETS_DATA": str(self.data),
            "PARCEL_ASSETS_WORKERS": str(self.workers),
            "PARCEL_ASSETS_ENGINE": self.engine,
            "PARCEL_ASSETS_ACCELERATORS_PER_WORKER": f"{self.accelerators_per_worker:g}",
            "DAGSTER_HOME": str(self.dagster_home),
        }


def _wrong_kind(found: str, expected: str, path: Path) -> SettingError:
    return SettingError(
        found,
        expected=f"{expected}, or nothing yet",
        where=str(path),
        remedy="Move it aside, or name another place in the settings.",
    )


def _recipient(env: Mapping[str, str]) -> str | None:
    text = (env.get("PARCEL_ASSETS_HOLDOUT_RECIPIENT") or "").strip()
    if text and not re.fullmatch(r"age1[0-9a-z]{10,}", text):
        raise SettingError(
            f"{text[:20]!r}",
            expected="an age public key, age1…",
            where="PARCEL_ASSETS_HOLDOUT_RECIPIENT",
            remedy="Set it to the public key of whoever keeps the holdout's key, or unset it.",
        )
    return text or None


def _timestamp_text(env: Mapping[str, str]) -> str:
    return (env.get("PARCEL_ASSETS_TIMESTAMP_URL") or "").strip()


def _timestamp_url(env: Mapping[str, str]) -> str | None:
    text = _timestamp_text(env)
    if text in {"", NO_TIMESTAMPS}:
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    good = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    if not host or not good or parts.username is not None or not text.isascii():
        raise SettingError(
            repr(text.rpartition("@")[2]),  # never a password
            expected="an https:// address without a user name (http:// on this very machine only), "
            f"or `{NO_TIMESTAMPS}`",
            where="PARCEL_ASSETS_TIMESTAMP_URL",
            remedy="Set it to the address of an RFC 3161 timestamp authority, or unset it.",
        )
    return text


def _timestamp_root(env: Mapping[str, str]) -> Path | None:
    text = env.get("PARCEL_ASSETS_TIMESTAMP_ROOT")
    if not text and _timestamp_url(env) is not None:
        raise SettingError(
            "no root certificate",
            expected="the PEM file of the root under which the timestamp authority signs",
            where="PARCEL_ASSETS_TIMESTAMP_ROOT",
            remedy="Get it from the authority itself, and set this to its path: what it answers "
            "is checked before anything rests on it.",
        )
    return Path(text).absolute() if text else None


def _usual_data_folder() -> Path:
    """Return ./data where it holds plans, else the data folder of the checkout, else ./data."""
    here, checkout = Path.cwd() / "data", REPOSITORY / "data"
    if not (here / "plans").is_dir() and (checkout / "plans").is_dir():
        return checkout
    return here


def _engine(text: str) -> str:
    if text not in {"local", "ray"} and not re.fullmatch(r"ray:[A-Za-z0-9_.-]+:\d{1,5}", text):
        hint = " (ray:// is Ray Client's form: its workers outlive a killed coordinator.)"
        raise SettingError(
            repr(text),
            expected="local, ray (a cluster of its own on this machine) or ray:HOST:PORT (the "
            "address of a cluster that this host is a node of)",
            where="PARCEL_ASSETS_ENGINE",
            remedy="Name one of these, or unset it: local."
            + (hint if text.startswith("ray://") else ""),
        )
    return text


def _accelerators(env: Mapping[str, str]) -> float:
    text = env.get("PARCEL_ASSETS_ACCELERATORS_PER_WORKER") or "0"
    if not re.fullmatch(r"0?\.\d+|\d+(\.0)?", text):  # Ray takes fractions below one only
        raise SettingError(
            repr(text),
            expected="a whole number of accelerators, or a fraction below one such as 0.25",
            where="PARCEL_ASSETS_ACCELERATORS_PER_WORKER",
            remedy="Set it to what one worker needs on Ray, or unset it: 0.",
        )
    return float(text)


def _workers(env: Mapping[str, str]) -> int:
    text = env.get("PARCEL_ASSETS_WORKERS", "")
    if not text:
        return min(2, os.cpu_count() or 1)
    if not text.isdecimal() or int(text) < 1:
        raise SettingError(
            repr(text),
            expected="a whole number of workers, at least 1",
            where="PARCEL_ASSETS_WORKERS",
            remedy="Set it to the number of trials that may run at once, or unset it.",
        )
    return int(text)
