"""The ranks of a gang, their agents, and the messages between them."""
