"""A module of a stack that takes its time: it is loaded once the file that the variable SLOW_MODULE names is there."""

import os
import time

while not os.path.exists(os.environ["SLOW_MODULE"]):
    time.sleep(0.05)
