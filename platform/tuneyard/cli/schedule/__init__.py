"""`tuneyard schedule`: jobs that run again and again, on a hub and on this machine."""
