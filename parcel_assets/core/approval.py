"""Approvers: whose signature a decision needs, over which bytes, and what makes a decision unsound.

A plan may list approvers with their roles and public keys. Then a decision counts only with a
signature of the listed key over what was decided about which evidence; without a list every name
is self-declared. Checking one signature is left to the caller.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from parcel_assets.core.approval_points import ed25519_fault, p256_fault
from parcel_assets.core.codec import canonical_json, short
from parcel_assets.core.space import Section, shown_as_it_is
from parcel_assets.core.trial import Decision

FORMAT = "parcel-decision/2"
# what a public key's DER begins with, how long its point is, and what is wrong with one
_KEYS: Mapping[str, tuple[bytes, int, Callable[[bytes], str | None]]] = {
    "Ed25519": (bytes.fromhex("302a300506032b6570032100"), 32, ed25519_fault),
    "ECDSA P-256": (
        bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004"),
        64,
        p256_fault,
    ),
}
SELF_DECLARED = "self-declared"
ANYBODY = "anybody with access to this ledger (names are self-declared)"


ApproverName = Annotated[str, Field(pattern=r"^\S(.{0,78}\S)?$"), AfterValidator(shown_as_it_is)]
# public key (as the plan has it), signed bytes, signature -> whether it is by that key
SignatureHolds = Callable[[str, bytes, bytes], bool]


def key_bytes(public_key: str) -> bytes:
    """Return the DER bytes of a public key given as PEM or as PEM's base64; raises ValueError."""
    lines = [line.strip() for line in public_key.strip().splitlines()]
    text = "".join(line for line in lines if "-----" not in line)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("is neither PEM nor base64") from error


class ApproverPlan(Section):
    """One person who may decide: in which role, and by which key (Ed25519 or ECDSA P-256)."""

    role: ApproverName  # without spaces around it, as a decision's role is
    public_key: str = Field(min_length=1)

    @model_validator(mode="after")
    def _known_kind(self) -> Self:
        if "PRIVATE" in self.public_key:
            raise ValueError("public_key holds a PRIVATE key: it is spoilt now, make a new one")
        der = key_bytes(self.public_key)
        for head, size, fault_of in _KEYS.values():
            if der.startswith(head) and len(der) == len(head) + size:
                if (fault := fault_of(der[-size:])) is not None:
                    raise ValueError(f"public_key {fault}")
                return self
        raise ValueError(f"public_key is no {' or '.join(_KEYS)} public key")


def signed_bytes(revision: str, plan_digest: str, decision: Decision, *, after: str) -> bytes:
    """Return the canonical bytes that an approver signs: what is decided about which evidence.

    `after` is the digest of the decision event before it, or "": so that nobody can bring back an
    older decision by writing its signature once more.
    """
    return canonical_json(
        {
            "format": FORMAT,
            "revision": revision,
            "plan_digest": plan_digest,
            "slice_evidence": decision.slice_evidence,
            "outcome": decision.outcome,
            "name": decision.name,
            "role": decision.role,
            "reason": decision.reason,
            "scope": decision.scope,
            "expires_on": decision.expires_on,
            "after": after,
        }
    )


def approver_fault(
    approvers: Mapping[str, ApproverPlan], name: str, role: str
) -> tuple[str, str] | None:
    """Return what is wrong with who decides as (found, expected), or None; no list, no fault."""
    if not approvers:
        return None
    listed = approvers.get(name)
    if listed is None:
        named = ", ".join(f"{one} ({plan.role})" for one, plan in sorted(approvers.items()))
        return f"{name!r}, whom the plan does not list", f"one of its approvers: {named}"
    if listed.role != role:
        return f"{name} as {role!r}", f"the role {listed.role!r}, as the plan lists {name}"
    return None


def approval_fault(
    approvers: Mapping[str, ApproverPlan],
    revision: str,
    plan_digest: str,
    decision: Decision,
    holds: SignatureHolds,
    *,
    after: str,
) -> tuple[str, str] | None:
    """Return why the plan's approvers did not make this decision as (found, expected), or None."""
    who = approver_fault(approvers, decision.name, decision.role)
    if who is not None:
        return who
    if not approvers:  # no page may say that somebody vouched for the name
        unasked = ("a signature, though the plan lists no approvers", "a self-declared name")
        return unasked if decision.signature else None
    by = f"a signature by the key that the plan lists for {decision.name}"
    if not decision.signature:
        return "a decision without a signature", by
    try:
        signature = base64.b64decode(decision.signature, validate=True)
    except (binascii.Error, ValueError):
        return "a signature that is no base64", by
    data = signed_bytes(revision, plan_digest, decision, after=after)
    if not holds(approvers[decision.name].public_key, data, signature):
        about = f"{decision.outcome} of slice report {short(decision.slice_evidence)}"
        words = f"{by}, over exactly these words after the same decision as now"
        return "a signature that does not hold", f"{words}, and over {about} of {revision}"
    return None


def who_words(decision: Mapping[str, Any]) -> str:
    """Return who decided, and what vouches for the name."""
    vouched = (
        "signed with the key that the plan lists"
        if decision.get("signature")
        else f"the name is {SELF_DECLARED}"
    )
    return f"{decision['name']}, {decision['role']} ({vouched})"


def may_decide(approvers: Mapping[str, ApproverPlan]) -> tuple[str, ...]:
    """Return who may decide under a plan: its approvers with their roles, or anybody."""
    return tuple(f"{name} ({one.role})" for name, one in sorted(approvers.items())) or (ANYBODY,)


def decide_commands(
    revision: str, approvers: Mapping[str, ApproverPlan], *, is_replaceable: bool = True
) -> dict[str, str]:
    """Return, by outcome, the command that decides; its blanks stand in capitals."""
    key = " --key PRIVATE.pem" if approvers else ""
    words = "--name NAME --role ROLE --reason TEXT"
    commands = {
        "accept": f"--outcome accept {words} --scope TEXT --expires YYYY-MM-DD",
        "replace": f"--outcome replace {words}",
        "close": f"--outcome close {words}",
    }
    return {
        outcome: f"parcel-assets decide {revision} {one}{key}"
        for outcome, one in commands.items()
        if outcome != "replace" or is_replaceable
    }
