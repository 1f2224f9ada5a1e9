"""The real coordinator in simulated worlds: one seed is one world, and its end is always the same.

`chance` decides what goes wrong, `storage` and `engine` let it happen, `worker` lies or trains,
`model` holds the rules, `world` runs the search until it ends, `__main__` is for long runs. In a
`theatre` the same workers follow a script, for tests of one thing.
"""
