"""One stage each: a fixed order of reads and writes against ports."""
