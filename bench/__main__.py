"""`python -m bench`: the trainer's overhead, the whole search against the plain loop, governing."""

from bench import no_op_search, search_wall, trainer_overhead

print("Lightning trainer / plain loop, one process", flush=True)
trainer_overhead.main(rounds=5)
print("search with two workers / plain sequential loop", flush=True)
search_wall.main()
print("search whose workers train nothing", flush=True)
no_op_search.main()
