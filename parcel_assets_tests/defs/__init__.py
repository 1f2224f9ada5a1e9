"""Specifications of the Dagster definitions."""
