"""`python -m bench`: the trainer's overhead, the whole search against the plain loop, governing."""

from bench import ledger, no_op_search, search_wall, trainer_overhead

print("Lightning trainer / plain loop, one process", flush=True)
trainer_overhead.main(rounds=5)
print("search with two workers / plain sequential loop", flush=True)
search_wall.main()
print("ledger: a durable report; 10,000 trials read, verified, folded", flush=True)
ledger.main([])
print("search whose workers train nothing", flush=True)
no_op_search.main()
