"""Specifications of the example code location."""
