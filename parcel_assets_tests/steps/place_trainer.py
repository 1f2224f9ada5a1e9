"""A trainer whose model is the place of one byte in a photo: scores are known at once."""

import json
from pathlib import Path

import numpy as np

from parcel_assets.core.codec import canonical_json
from parcel_assets.core.ports import Pixels, Scores


class PlaceTrainer:
    def score(self, model: Path, pixels: Pixels) -> Scores:
        place = int(json.loads(model.read_bytes())["place"])
        return place_scores(pixels, place)


class KilledTrainer:
    """Ends its process in the middle of scoring."""

    def score(self, model: Path, pixels: Pixels) -> Scores:
        raise SystemExit(9)


def place_scores(pixels: Pixels, place: int) -> Scores:
    flat = np.asarray(pixels).reshape(len(pixels), -1)
    scores: Scores = (flat[:, place] / np.float32(255)).astype(np.float32)
    return scores


def model_bytes(place: int) -> bytes:
    return canonical_json({"place": place})
