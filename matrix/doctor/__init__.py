"""Known traps of a machine and an interpreter, looked for before a long run: `python -m matrix doctor`.

`place.py` is what is looked at, `interpreter.py` and `native.py` read an interpreter and its libraries from files on disk, a module a
subject holds the checks, `catalogue.py` lists them all, `words.py` prints.  Nothing that is examined is ever imported.
"""
