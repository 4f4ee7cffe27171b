# What type checkers and editors see of `__init__.py`, which imports these at their first use.
from tuneyard.cli.from_python import run as run
from tuneyard.cli.submit.from_python import submit as submit

__version__: str
