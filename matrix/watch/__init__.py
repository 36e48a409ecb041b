"""The flight recorder for one run: `watch -- COMMAND` and `watch --pid N`."""
