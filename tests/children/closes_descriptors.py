"""Daemon style: closes every descriptor, opens a file of its own under each number, forks and crashes."""

import ctypes
import os
import sys

os.closerange(3, 400)
while os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND) < 260:
    pass
pid = os.fork()
if pid == 0:
    ctypes.string_at(0)
os.waitpid(pid, 0)
