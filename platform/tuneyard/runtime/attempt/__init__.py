"""What only the head pod of an attempt has: its assignment, its report to the hub, its logs."""
