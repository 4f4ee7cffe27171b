"""Process tasks: run a command of the author."""
