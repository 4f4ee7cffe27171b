"""Parts of the report page, one file each: values in the words of people, which the template only lays out.

Every part takes a task as report.json holds it, of this version or an earlier one, and shows what it knows.
"""
