"""Freeze the trial table: fold the ledger to its rows, digest and store them, validate them.

What a row holds is decided in core.table, what a table must meet by the validator's suite; whether
its verdicts stop the chain, by the gate table.
"""

from collections import Counter

from parcel_assets.core.evidence import TableBody
from parcel_assets.core.ports import Ports
from parcel_assets.core.search import fold_search
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.steps.admission import open_stage
from parcel_assets.steps.dispatch_repair import require_lineages


def validate_table(revision: str, ports: Ports) -> Evidence:
    """Record the frozen table with the validator's word on each expectation."""
    with open_stage(Stage.TABLE, revision, ports) as session:
        if session.existing is not None:
            return session.existing
        require_lineages(session)
        chain = session.chain
        rows = table_rows(chain.plan, fold_search(chain.plan, chain.events))
        documents = [row.document() for row in rows]
        body = TableBody(
            table_digest=table_digest(rows),
            table_document=ports.store.put_document(documents),
            rows=len(rows),
            trials_by_state=dict(sorted(Counter(str(row.state) for row in rows).items())),
            expectations=tuple(ports.validator.validate(documents, chain.plan)),
            ledger_head=chain.events[-1].digest,
        )
        return session.record(body)
