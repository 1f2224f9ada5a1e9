"""Drills: their judges tell right from wrong, and each one has the right outcome."""
