"""The head pod of an attempt: its assignment, its report to the hub, its logs."""
