"""device mesh, automatic tensor parallelism, hybrid sharding. Nothing here yet."""
