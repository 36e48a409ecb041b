"""The parent waits for a forked process that spins in a second thread, while its own main thread sleeps."""

import os
import sys
import threading
import time


def spin() -> None:
    while True:
        pass


def wait_for_the_other() -> None:
    print(os.getpid(), flush=True)
    time.sleep(60)


pid = os.fork()
if pid == 0:
    sys.setswitchinterval(0.001)
    threading.Thread(target=spin, name="miner", daemon=True).start()
    wait_for_the_other()
os.waitpid(pid, 0)
