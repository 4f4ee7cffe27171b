"""Files in the notations of other programs: JSON documents, workbooks, and types that are not read."""
