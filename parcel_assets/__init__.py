"""parcel_assets: a governed model search, from pinned photos to a release packet.

The public names below are loaded when first asked for, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parcel_assets.adapters.packet_folder import fetch_packet, verify_packet
    from parcel_assets.core.disposition import parcel_search_disposition

__version__ = "0.1.0"
__all__ = ["__version__", "fetch_packet", "parcel_search_disposition", "verify_packet"]

_HOMES = {
    "fetch_packet": "parcel_assets.adapters.packet_folder",
    "parcel_search_disposition": "parcel_assets.core.disposition",
    "verify_packet": "parcel_assets.adapters.packet_folder",
}


def __getattr__(name: str) -> Any:
    """Return a public name from the module that holds it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
