"""Programs that die for a known reason, and how often the tool finds it: `python -m benchmarks.zoo`."""
