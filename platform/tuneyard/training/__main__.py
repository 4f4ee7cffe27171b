"""See command.py."""

import sys

from tuneyard.training.quick_imports import quick_imports

with quick_imports():
    from tuneyard.training.command import main

sys.exit(main())
