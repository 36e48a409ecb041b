"""How many runs the search takes, how often it is right, and whether its probabilities mean what they say.

    python -m benchmarks.search                   # minutes: a few simulated programs of each kind
    python -m benchmarks.search --worlds 300      # hours; what is done is kept and not done again

`worlds` draws simulated programs, `players` and `peers` solve them, `table` says who solves what, `figures` sums up.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: two processes share the machine's two processors
