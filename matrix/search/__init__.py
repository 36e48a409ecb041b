"""Where it dies: which run teaches most, and what the answers mean.  Ask and tell, as in hyper-parameter tuners.

search = Search(spec, seed=0)
while (trial := search.ask()) is not None:
    search.tell(trial, run(trial))
print(search.result().explain())
"""

from matrix.records import Outcome, Trial
from matrix.search.engine import Search
from matrix.search.result import Result

__all__ = ["Outcome", "Result", "Search", "Trial"]
