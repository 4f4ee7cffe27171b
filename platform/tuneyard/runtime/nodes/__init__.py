"""The machines of an attempt: their agents, checks, losses and memory."""
