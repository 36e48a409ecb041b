"""Secrets and identities taken out of files that leave the machine.

`Redactor` learns from all files, then writes each without them; `leaks` reads the finished archive again.  The rules of gitleaks are
used as data (`rules.py`), for they are well kept.  The rest is own code: scanners for repositories know no logs, records and
command lines, and do not spare what diagnosis lives on: hashes, build-ids, symbols, versions and addresses.
"""

from reports.redact.identity import Known, names_of, names_of_here
from reports.redact.redactor import Redactor
from reports.redact.scan import Leak, leaks

__all__ = ["Known", "Leak", "Redactor", "leaks", "names_of", "names_of_here"]
