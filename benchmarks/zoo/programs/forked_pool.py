"""A pool is forked after the parent has used torch with threads (reports: a hang in the first batch of the workers)."""

import multiprocessing

import job

A = job.options(start="fork", workers=2)


def embed(number: int) -> float:
    import torch

    return float((torch.randn(400, 400) @ torch.randn(400, 400)).sum())


if __name__ == "__main__":
    import torch

    torch.set_num_threads(A.threads)
    (torch.randn(600, 600) @ torch.randn(600, 600)).exp().sum()
    torch.randn(2_000_000).exp().sum()
    context = multiprocessing.get_context(A.start)
    pool = context.Pool(A.workers) if A.workers else None
    for number in range(6):
        values = pool.map(embed, range(A.workers)) if pool else [embed(number)]
        job.step(number, loss=sum(values) / len(values))
    if pool:
        pool.terminate()
    job.finished()
