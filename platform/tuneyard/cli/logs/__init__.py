"""`tuneyard logs`: which logs are read, how they are followed and printed."""
