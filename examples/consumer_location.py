"""A consumer in a code location of its own: it depends on a packet by key and loads it verified.

It imports no asset of ours. Dagster's event log may say that a packet exists; what counts is that
the folder verifies, so the packet is checked each time it is loaded.
"""

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg

from parcel_assets import verify_packet

# the same name makes the same set of keys: partitions live in the Dagster instance
revisions = dg.DynamicPartitionsDefinition(name="search_revision")


class VerifiedPackets(dg.ConfigurableIOManager):
    """Loads a release packet from its folder, refusing one that does not verify."""

    packets_folder: str
    public_key_path: str = (
        ""  # the release key as its owner gave it to you; empty: the packet's own
    )

    def load_input(self, context: dg.InputContext) -> dict[str, Any]:
        folder = Path(self.packets_folder) / context.partition_key
        key = Path(self.public_key_path).read_bytes() if self.public_key_path else None
        found = verify_packet(folder, None, key)
        faults = list(found["faults"])
        if not found["signature_ok"]:
            faults.append(found["signature_sentence"])
        if faults:
            raise dg.Failure(
                description=f"The packet {folder.name} does not verify: {faults[0]}",
                metadata={"faults": dg.MetadataValue.json(faults), "folder": str(folder)},
                allow_retries=False,
            )
        verdict: dict[str, Any] = json.loads((folder / "VERDICT.json").read_bytes())
        return {"folder": folder, "digest": found["packet_digest"], "verdict": verdict}

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise NotImplementedError("a consumer writes no packets")


release_packet = dg.AssetSpec(
    "release_packet",
    partitions_def=revisions,
    group_name="upstream",
    description="Published by the location parcel_assets.",
).with_io_manager_key("packets")


@dg.asset(
    ins={"release_packet": dg.AssetIn("release_packet")},
    partitions_def=revisions,
    group_name="5_consumer",
    kinds={"python"},
    io_manager_key="packets",  # returns no value; without it Dagster would offer to pickle one
)
def belt_camera_settings(
    release_packet: dict[str, Any],
) -> dg.MaterializeResult[None]:
    """Threshold and model that the belt cameras load, taken from a verified packet."""
    folder: Path = release_packet["folder"]
    threshold = json.loads((folder / "model" / "threshold.json").read_bytes())
    return dg.MaterializeResult(
        metadata={
            "packet_digest": release_packet["digest"],
            "threshold": dg.MetadataValue.json(threshold),
            "model": dg.MetadataValue.path(str(folder / "model" / "model.safetensors")),
        }
    )


def packets_folder() -> str:
    """Return where the example finds packets: beside the data of this checkout."""
    data = os.environ.get("PARCEL_ASSETS_DATA") or str(Path(__file__).parent.parent / "data")
    return os.environ.get("PARCEL_ASSETS_PACKETS") or str(Path(data) / "packets")


defs = dg.Definitions(
    assets=[release_packet, belt_camera_settings],
    resources={"packets": VerifiedPackets(packets_folder=packets_folder())},
)
