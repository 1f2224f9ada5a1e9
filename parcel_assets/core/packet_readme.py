"""A packet's README.md: how a stranger verifies it with sha256sum and openssl, and nothing of ours.

What stands in the other files, and the card of the model, is left to `packet_text`.
"""

from collections.abc import Sequence

from parcel_assets.core.ledger import Event
from parcel_assets.core.packet import (
    KEY_FILE,
    LEDGER_FILE,
    MODEL_FILE,
    SIGNATURE_FILE,
    SUMS_FILE,
    VERDICT_FILE,
    key_fingerprint,
)
from parcel_assets.core.timestamps import (
    CHOICE,
    SPLIT,
    event_file,
    token_file,
    told_timestamps,
)


def readme(revision: str, key: bytes, events: Sequence[Event], *, is_closed: bool = False) -> bytes:
    """Return README.md: how to verify the packet with sha256sum and openssl and nothing of ours."""
    title, holding = (
        "Release packet",
        "what was searched, what was found, who decided, and the model",
    )
    only_once = (
        "the verdict, that the\nholdout was opened exactly once, after the selection, for exactly "
        f"this `{MODEL_FILE}`."
    )
    if is_closed:
        title, holding = "Record", "what was searched, what was found, and who closed it; no model"
        only_once = "the verdict, that the\nsearch was closed and the holdout never opened."
    return f"""\
# {title} of search revision `{revision}`

Plain files: {holding}. Open `report.html` in a
browser; `{VERDICT_FILE}` says the same to a program. Every number on its first page names the file
and the place it was read from.

## Verify it without any tool of ours

In this folder, with `sha256sum` and `openssl`:

```bash
# 1. is the list signed by the release key?
openssl dgst -sha256 -verify {KEY_FILE} -signature {SIGNATURE_FILE} {SUMS_FILE}
# 2. does every file have its digest?
sha256sum --check --strict --quiet {SUMS_FILE} && echo "every listed file is as signed"
# 3. is nothing here that the list does not name? (prints nothing)
find . ! -type d | sed 's|^\\./||' | grep -vxF -e {SUMS_FILE} -e {SIGNATURE_FILE} \\
  | grep -vxFf <(cut -c67- {SUMS_FILE})
# 4. whose key is it? compare with the fingerprint you were given on another way
openssl pkey -pubin -in {KEY_FILE} -outform DER | sha256sum
```

The fingerprint should be `{key_fingerprint(key)}`.
A key inside the packet proves only that list and key belong together; who owns the key you must
learn elsewhere.
{_timestamp_text(events)}
## What else can be checked

`parcel-assets packet verify FOLDER` does the above and also recomputes, from `ledger.jsonl`: the
chain of events, the digests of `evidence/*.json`, all trials and attempts, {only_once}
""".encode()


def _timestamp_text(events: Sequence[Event]) -> str:
    """Return what a reader can check of a packet's timestamps, and what they say and do not."""
    told = {name: one for name, one in told_timestamps(events).items() if one is not None}
    if not told:
        return """
This search is not timestamped: that its split was sealed before the first trial, and its choice
made before the holdout was opened, rests on this ledger alone.
"""
    missing = [name for name in (SPLIT, CHOICE) if name not in told]
    lines = [
        "",
        "## Check its timestamps",
        "",
        "A timestamp authority signed that it saw an event of the ledger, and when. The event is",
        f"beside its token; its SHA-256 is its digest in `{LEDGER_FILE}`. Get the authority's root",
        "certificate from the authority itself, never from this packet's author. Keep it outside",
        "this folder (here `../root.pem`): a file in it that the list does not name is a fault.",
        "",
        "```bash",
        *(
            f"openssl ts -verify -data {event_file(name)} -in {token_file(name)} "
            "-CAfile ../root.pem"
            for name in told
        ),
        *(f"openssl ts -reply -in {token_file(name)} -text | grep 'Time stamp'" for name in told),
        "```",
        "",
        *(
            f"- {name}: event {one['event']}, stamped {one['stamped_at']} by `{one['authority']}`"
            for name, one in told.items()
        ),
        *(f"- {name}: not timestamped" for name in missing),
        "",
        "This shows that what is written up to that event was written before that time. It does",
        "not show that nobody looked at the holdout in another way, nor who the authority is.",
        "`parcel-assets packet verify FOLDER --timestamp-root root.pem` checks the same, and that",
        "the split's stands before the first trial and the choice's right before the opening.",
        "",
    ]
    return "\n".join(lines)
