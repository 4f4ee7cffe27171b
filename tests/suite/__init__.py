"""`make test`: everything in parts, side by side, and one sum at the end.

A `Part` (`parts`) is a command of its own, mostly one pytest process over the files that share servers and clusters. `scheduling` starts
parts as lanes become free and holds each to a limit; `processor` measures what all that they start uses; `results` reads what
pytest wrote down, and `closing` says what came out. `imports` and `touched` find the parts that a change can touch. `servers_built` is the
part that has Go, Maven and Debian bring what the others need. `python -m tests.suite` puts them together.
"""
