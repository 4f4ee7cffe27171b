"""Servers and programs beside the product: S3, HDFS, PostgreSQL, Chromium, endpoints, trackers, and the doors that make them fail.

`installed` finds or installs the real ones. The others are servers of the test's own process.
"""
