"""`python -m bench`: the trainer's overhead, then the whole search against the plain loop."""

from bench import search_wall, trainer_overhead

print("Lightning trainer / plain loop, one process", flush=True)
trainer_overhead.main(rounds=5)
print("search with two workers / plain sequential loop", flush=True)
search_wall.main()
