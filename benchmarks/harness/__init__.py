"""What the benchmarks share: rows and tables, servers of ours and of the peers, a small load client."""
