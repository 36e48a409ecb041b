"""Runs the doctor's checks that are named and prints what they found as JSON: limits and groups are those that it was started with."""

from __future__ import annotations

import dataclasses
import json
import sys

from matrix.doctor import catalogue
from matrix.doctor.interpreter import Interpreter
from matrix.doctor.place import Place

place = Place(python=Interpreter(executable=sys.executable, version=sys.version_info[:3]))
report = catalogue.run(place, tuple(catalogue.find(name) for name in sys.argv[1:]))
found = {finding.id: dataclasses.asdict(finding) for finding in report.findings}
print(
    json.dumps({"found": found, "fine": [each.id for each in report.fine], "not_seen": [[each.id, why] for each, why in report.not_seen]})
)
