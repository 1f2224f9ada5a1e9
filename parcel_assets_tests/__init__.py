"""Tests of parcel_assets: read them as the specification."""
