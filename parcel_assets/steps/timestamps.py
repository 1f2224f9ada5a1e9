"""Have an authority stamp the ledger's newest event, before the first trial and the opening.

What a timestamp proves and which count is decided in core.timestamps. A stage asks here before it
does what cannot be undone: a refused or false answer records nothing and opens nothing.
"""

from parcel_assets.core.errors import TimestampError
from parcel_assets.core.ledger import Kind, Lease, event_bytes
from parcel_assets.core.ports import Ports
from parcel_assets.core.timestamps import Timestamp, require_near, split_timestamp


def stamp_split(lease: Lease, ports: Ports) -> None:
    """Have the sealed split stamped before the first trial, once, where an authority is set."""
    if split_timestamp(ports.ledger.events(lease.revision)) is None:
        _stamp_head(lease, ports)


def stamp_choice(lease: Lease, ports: Ports) -> None:
    """Have all that leads to the opening stamped right before it, where an authority is set.

    Raises TimestampError where none is set after a stamped split and nobody has said that this is
    meant: the level lost here could not be gained back.
    """
    stamped = split_timestamp(ports.ledger.events(lease.revision)) is not None
    if ports.timestamper is None and stamped and not ports.timestamps_declined:
        raise TimestampError(
            "no timestamp authority, although the split was timestamped",
            expected="a timestamp of the choice too, before the holdout is opened",
            where=f"final evaluation of {lease.revision}",
            remedy="Set PARCEL_ASSETS_TIMESTAMP_URL and PARCEL_ASSETS_TIMESTAMP_ROOT as for the "
            "search. To open without for good, set PARCEL_ASSETS_TIMESTAMP_URL=none: the packet "
            "then says so. Nothing was opened.",
        )
    _stamp_head(lease, ports)


def _stamp_head(lease: Lease, ports: Ports) -> None:
    """Record a token over the newest event, unless that is a timestamp already.

    Raises TimestampError, recording nothing, where the authority gives none that holds.
    """
    head = ports.ledger.events(lease.revision)[-1]
    if ports.timestamper is None or head.kind == Kind.TIMESTAMP_RECORDED:
        return
    token = ports.timestamper.stamp(event_bytes(head))
    require_near(token, head, ports.ledger.now())
    body = Timestamp(
        token=ports.store.put(token.content, ".tsr"),
        authority=token.authority,
        stamped_at=token.at_seconds,
    )
    # only the holder of the lease appends: what stands before is still what was stamped
    ports.ledger.append(lease, [(Kind.TIMESTAMP_RECORDED, body.document())])
