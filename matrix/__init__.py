"""The doctor: runs a dying job on purpose, one thing changed at a time, and says why it dies."""

__version__ = "0.1.0"
