"""What serving a model takes, from a reading of one replica: replicas and memory for a stated peak.

Taking the reading is left to an adapter; the formula is `ceil(peak * (1 + headroom) / throughput)`,
never fewer than two, so that one may fail.
"""

import math
from collections.abc import Mapping
from typing import Any

PEAK_PHOTOS_PER_SECOND = 20.0  # assumed, and said so: a plan states no traffic
HEADROOM = 0.3
REPLICAS_MINIMUM = 2
MEMORY_FACTOR = 1.2


def replicas_needed(
    photos_per_second: float,
    *,
    peak_photos_per_second: float = PEAK_PHOTOS_PER_SECOND,
    headroom: float = HEADROOM,
) -> int:
    """Return how many replicas carry the peak with headroom, at least two."""
    return max(
        REPLICAS_MINIMUM, math.ceil(peak_photos_per_second * (1 + headroom) / photos_per_second)
    )


def serving_estimate(
    reading: Mapping[str, Any], *, peak_photos_per_second: float = PEAK_PHOTOS_PER_SECOND
) -> dict[str, Any]:
    """Return a reading with replicas and memory for the peak, and the sentence a page prints.

    One request at a time is assumed: `requests_per_second` of a replica, encoded photo to score.
    """
    throughput = float(reading["requests_per_second"])
    replicas = replicas_needed(throughput, peak_photos_per_second=peak_photos_per_second)
    memory = replicas * float(reading["peak_memory_bytes"]) * MEMORY_FACTOR
    sentence = (
        f"{replicas} replicas of one CPU thread and {memory / replicas / 2**20:.0f} MiB each carry "
        f"{peak_photos_per_second:g} photos a second between them, with {100 * HEADROOM:.0f} % to "
        f"spare and never fewer than two; one photo takes {reading['latency_p50_ms']:.1f} ms "
        f"(95 % within {reading['latency_p95_ms']:.1f} ms)."
    )
    return {
        "sentence": sentence,
        **reading,
        "stated_peak_photos_per_second": peak_photos_per_second,
        "headroom": HEADROOM,
        "replicas": replicas,
        "memory_bytes_for_peak": round(memory),
    }
