"""Small archives for tests: photos with content of their own, and a table that names them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from parcel_assets.core.plan import Columns, SnapshotPlan

COLUMNS = ("path", "shipment_id", "label", "damage_type", "camera_class")
SECTION = SnapshotPlan(
    archive="test",
    location="archive",
    columns=Columns(damage_type="damage_type", camera_class="camera_class"),
)


def draw(path: Path, content: int, side_pixels: int = 24) -> None:
    """Write a JPEG whose pixels are a function of `content` alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(content).integers(0, 256, (side_pixels, side_pixels, 3))
    Image.fromarray(values.astype(np.uint8)).save(path, "JPEG", quality=90)


def draw_smooth(path: Path) -> None:
    """Draw what a camera might see: colours that change slowly, unlike noise."""
    across, down = np.meshgrid(np.linspace(0, 3, 96), np.linspace(0, 2, 96))
    waves = [np.sin(across + down), np.cos(across * 2), np.sin(down * 3)]
    Image.fromarray((np.stack(waves, axis=2) * 100 + 128).astype(np.uint8)).save(path, quality=95)


def row(path: str, shipment: str = "0001", label: str = "intact", **more: str) -> dict[str, str]:
    """Return a table row; damaged photos have a dent unless said otherwise."""
    usual = {"damage_type": "dent" if label == "damaged" else "", "camera_class": "top"}
    return {"path": path, "shipment_id": shipment, "label": label, **usual, **more}


def write_table(folder: Path, rows: Iterable[Mapping[str, str]], name: str = "labels.csv") -> None:
    """Write a plain CSV table."""
    lines = [",".join(COLUMNS), *(",".join(one[name] for name in COLUMNS) for one in rows)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_archive(folder: Path, rows: list[dict[str, str]]) -> Path:
    """Write a table and, for each row, a photo of its own."""
    for number, one in enumerate(rows):
        draw(folder / one["path"], number)
    write_table(folder, rows)
    return folder


def usual_rows(shipments: int = 60, frames: int = 2) -> list[dict[str, str]]:
    """Return rows of many shipments, every third of them damaged."""
    return [
        row(
            f"images/{shipment:04}_{frame}.jpg",
            f"{shipment:04}",
            "damaged" if shipment % 3 == 0 else "intact",
            camera_class=("top", "side")[frame % 2],
        )
        for shipment in range(shipments)
        for frame in range(frames)
    ]
