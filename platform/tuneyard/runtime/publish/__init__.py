"""A finished model leaves this machine: to the Hugging Face hub, to a folder at a path or a URI, or into a file of another program."""
