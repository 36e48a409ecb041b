"""A forked process reads address 0; the parent waits for it and ends well."""

import ctypes
import os


def read_nothing() -> None:
    ctypes.string_at(0)


pid = os.fork()
if pid == 0:
    read_nothing()
print(pid)
print(os.waitpid(pid, 0)[1])
