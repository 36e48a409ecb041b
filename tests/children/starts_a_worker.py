"""Starts one worker: by multiprocessing's default, by a context that it asks for, or by os.fork(); says which method it was."""

import multiprocessing
import os
import sys


def work() -> None:
    print("step 1", flush=True)


def main(how: str) -> None:
    if how == "os.fork":
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return
    context = multiprocessing.get_context(None if how == "default" else how)
    worker = context.Process(target=work)
    worker.start()
    worker.join()
    print(context.get_start_method(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
