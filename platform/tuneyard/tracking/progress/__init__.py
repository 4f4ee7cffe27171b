"""Where a job is: events folded into one state, for reports, for the hub, and for people."""
