"""Process tasks: a command of the author."""
