"""See command.py."""

import sys

from tuneyard.training.command import main

sys.exit(main())
