"""Notations of turns of a chat: who speaks, and contents in blocks. Each becomes a message with OpenAI's keys."""
