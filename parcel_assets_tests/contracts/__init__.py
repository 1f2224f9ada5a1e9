"""What every implementation of a port must do: one suite per port that has more than one.

Ledger, engine, store, sampler, trainer and vault have a suite each, and their fakes run it too: a
fake that behaves unlike the real thing would make other tests lie. The other ports have one
implementation each, whose own tests in `adapters/` are its suite, and fakes that only hand out
fixed answers: archive source (folder; no fake, tests draw small archives), table validator (Great
Expectations), signer (ECDSA; no fake), registry (file; no fake), serving bench, pictures.
"""
