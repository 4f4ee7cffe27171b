"""client of the hub. Nothing here yet."""
