"""A native thread without any Python code reads address 0 while the main thread waits in a known line."""

import ctypes
import time

libc = ctypes.CDLL(None)
handle = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(handle), None, ctypes.cast(libc.strlen, ctypes.c_void_p), None)
time.sleep(20)
