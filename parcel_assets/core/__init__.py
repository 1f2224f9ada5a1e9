"""The part that decides. Pure: no clock, files, network, environment or frameworks."""
