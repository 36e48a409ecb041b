"""Forks by multiprocessing, by os.fork and not at all (spawn), with a second thread alive."""

import multiprocessing
import os
import threading


def nothing() -> None:
    pass


if __name__ == "__main__":
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="prefetch")
    thread.start()
    for method in ("fork", "spawn"):
        worker = multiprocessing.get_context(method).Process(target=nothing)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    os.waitpid(pid, 0)
    release.set()
    thread.join()
