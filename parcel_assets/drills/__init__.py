"""Incidents brought about on purpose, from outside, around real searches that know of none.

`registry` lists them, `ground` prepares data folders and starts runs, `watch` times an incident by
the ledger, `judge` says whether the outcome is the right one. Files in `outside` are what an
incident brings along: plans, a user's network, a shim; they run in the processes under test.
"""
