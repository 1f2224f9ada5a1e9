"""A search told as events, one sentence per call, for tests of what they add up to."""

from typing import Any

from parcel_assets.core.ledger import Event, Kind, chain_event
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import SearchState
from parcel_assets.core.trial import Cut, trial_id_of, trial_seed
from parcel_assets_tests.core.plans import plan as make_plan


def story_plan(**changes: Any) -> Plan:
    """Return a plan of 6 trials in batches of 2, ten steps, milestones 2, 5, 10."""
    settings = {
        "search__budget_trials": 6,
        "search__batch_trials": 2,
        "search__cap_accelerator_hours": 1.0,
        "search__trial_seconds_maximum": 30.0,
        "training": {
            "steps": 10,
            "batch_photos": 8,
            "milestones": [2, 5, 10],
            "checkpoint_every_steps": 3,
        },
        "pruning": {
            "keep_fractions": [0.5, 0.5],
            "minimum_comparable": 2,
            "warm_up_trials": 0,
        },
    }
    return make_plan(**(settings | changes))


class Story:
    """Events in order, folded as they are told; the clock moves one second per event."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan or story_plan()
        self.state = SearchState(self.plan)
        self.events: list[Event] = []
        self.clock = 0.0

    def tell(self, kind: Kind, **body: Any) -> None:
        self.clock += 1.0
        event = chain_event(
            self.events[-1] if self.events else None,
            revision="spring",
            at_seconds=self.clock,
            kind=kind,
            body=body,
        )
        self.events.append(event)
        self.state.apply(event)

    def batch(self, number: int, trials: list[int], cuts: tuple[Cut, ...] = ()) -> None:
        proposed = [
            {
                "number": one,
                "trial_id": trial_id_of(one),
                "seed": trial_seed(7, one),
                "configuration": {
                    "learning_rate": 0.001 * one,
                    "width": 8,
                    "rare_oversampling": 1.0,
                },
            }
            for one in trials
        ]
        table = [cut.document() for cut in cuts]
        self.tell(Kind.BATCH_OPENED, batch=number, trials=proposed, cut_table=table)

    def start(
        self,
        trial: int | str,
        attempt: int = 1,
        *,
        purpose: str = "search",
        prefix: str = "",
        resume: tuple[int, str] | None = None,
        training: str = "",
    ) -> str:
        subject = trial if isinstance(trial, str) else trial_id_of(trial)
        name = f"{subject}/{attempt}"
        self.tell(
            Kind.ATTEMPT_STARTED,
            attempt=name,
            subject=subject,
            purpose=purpose,
            worker_id="w",
            fence=1,
            prefix=prefix or f"spring/{name}",
            reserved_seconds=30.0,
            resume_step=resume[0] if resume else 0,
            parent_checkpoint=resume[1] if resume else None,
            training=training,
        )
        return name

    def report(
        self,
        attempt: str,
        step: int,
        cost: float | None,
        scores: str = "",
        verdict: tuple[str, str] = ("continue", ""),
        *,
        file: str = "",
    ) -> None:
        self.tell(
            Kind.MILESTONE_REPORTED,
            attempt=attempt,
            subject=attempt.rpartition("/")[0],
            step=step,
            photos_seen=step * 8,
            subset_digest="s" * 64,
            scores=scores or f"{attempt}@{step}",
            cost_per_1000=cost,
            threshold=None if cost is None else 0.5,
            verdict=verdict[0],
            reason=verdict[1],
            file=file,
        )

    def checkpoint(
        self,
        attempt: str,
        step: int,
        name: str,
        parent: str | None = None,
        *,
        file: str = "",
        payload: str = "",
    ) -> None:
        self.tell(
            Kind.CHECKPOINT_SAVED,
            attempt=attempt,
            subject=attempt.rpartition("/")[0],
            step=step,
            file=file or f"checkpoint-{step}.safetensors",
            checkpoint=name,
            parent_checkpoint=parent,
            payload=payload,
        )

    def end(
        self,
        attempt: str,
        state: str = "completed",
        *,
        step: int = 10,
        charged: float = 5.0,
        own: bool = False,
        model: str | None = None,
        model_file: str = "",
    ) -> None:
        record = self.state.attempts[attempt]
        self.tell(
            Kind.ATTEMPT_ENDED,
            attempt=attempt,
            subject=record.subject,
            purpose=record.purpose,
            state=state,
            step=step,
            charged_seconds=charged,
            own_failure=own,
            model=(model or f"model of {attempt}") if state == "completed" else None,
            model_file=model_file,
        )

    def quarantine(self, attempt: str) -> None:
        subject = attempt.rpartition("/")[0]
        self.tell(Kind.ATTEMPT_QUARANTINED, attempt=attempt, subject=subject, reason="a clash")

    def complete(self, trial: int, *costs: float, attempt: int = 1) -> None:
        """Tell a whole undisturbed trial with its costs at 2, 5 and 10."""
        name = self.start(trial, attempt)
        for step, cost in zip((2, 5, 10), costs, strict=True):
            self.report(name, step, cost)
        self.end(name)

    def close(self, batch: int) -> None:
        self.tell(Kind.BATCH_CLOSED, batch=batch)
