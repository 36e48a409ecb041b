"""Where attempts run.  Every executor runs the same supervisor, `matrix.runner.attempt.run`."""
