"""Words about what was found: run folders in, markdown, HTML, plots and a launch script out.

Reads records and judges nothing; imports of the engine only `matrix.records`.  Importing this package is cheap:
matplotlib, pandas and Jinja2 are imported by the functions that need them.
"""

from reports.compare import compare, compare_json
from reports.exports import export
from reports.writing import write

__all__ = ["compare", "compare_json", "export", "write"]
