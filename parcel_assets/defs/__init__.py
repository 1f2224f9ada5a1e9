"""Dagster only: resources, partitions, assets, checks, sensors, metadata."""
