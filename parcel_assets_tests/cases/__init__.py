"""Cases from public trackers of tools like ours, by number, each with the right outcome."""
