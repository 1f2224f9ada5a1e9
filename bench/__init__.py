"""Benchmarks against what a user would write instead; run by `make bench`."""
