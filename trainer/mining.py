"""Hard negatives: documents of the bank that are close to a query without being its own.  No torch in here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer.config import TrainConfig
from trainer.data import Floats, Rows

Ids = NDArray[np.int32]  # numbers of bank documents; -1: none
BLOCK = 65_536  # documents in one search: 201 MB of 768 values where they must be copied


def mine(bank: Floats, queries: Floats, positives: Floats, config: TrainConfig) -> Ids:
    """(n, negatives): for each query the nearest documents within the cosine band that are no near duplicates of its own document."""
    mined = np.full((len(queries), config.negatives), -1, np.int32)
    for start in range(0, len(queries), config.query_batch):
        batch = slice(start, start + config.query_batch)
        cosines, ids = search(bank, queries[batch], min(config.candidates, len(bank)), config.threads)
        for row in range(len(ids)):
            in_band = ids[row][(cosines[row] >= config.band_low) & (cosines[row] <= config.band_high)]
            kept = in_band[bank[in_band] @ positives[start + row] < config.near_duplicate][: config.negatives]
            mined[start + row, : len(kept)] = kept
    return mined


def search(bank: Floats, queries: Floats, k: int, threads: int) -> tuple[Floats, Rows]:
    """The k largest inner products of each query with the bank, in descending order: values (n, k) and document numbers (n, k).

    The bank is searched in blocks so that a mapped one is never copied whole.
    """
    import faiss  # here: runs that do not mine neither load it nor its OpenMP runtime

    if threads:
        faiss.omp_set_num_threads(threads)
    values, ids = [], []
    for start in range(0, len(bank), BLOCK):
        # An npz member may begin at any byte; native code gets aligned values only.
        block = np.require(bank[start : start + BLOCK], np.float32, ["C", "A"])
        block_values, block_ids = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        values.append(block_values)
        ids.append(block_ids + start)
    if len(ids) == 1:
        return values[0], ids[0]
    all_values, all_ids = np.concatenate(values, axis=1), np.concatenate(ids, axis=1)
    best = np.argsort(-all_values, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_values, best, 1), np.take_along_axis(all_ids, best, 1)


class HardNegatives:
    """What was mined for each training row, and at which step."""

    def __init__(self, rows: int, negatives: int, serves: int) -> None:
        self.ids: Ids = np.full((rows, negatives), -1, np.int32)
        self.serves = serves  # steps for which a mined row is used
        self.expires = np.zeros(rows, np.int64)  # first step at which it is no longer

    def stale(self, rows: Rows, last: int) -> Rows:
        """Those of the rows whose negatives do not serve up to the step `last`."""
        return rows[self.expires[rows] <= last]

    def put(self, rows: Rows, ids: Ids, step: int) -> None:
        """Keep what was mined, ids (n, negatives or fewer), for use from `step` on."""
        self.ids[rows] = -1
        self.ids[rows, : ids.shape[1]] = ids
        self.expires[rows] = step + self.serves

    def forget(self) -> None:
        """What was mined for another band serves no longer."""
        self.expires[:] = 0

    def get(self, rows: Rows, step: int) -> Ids:
        """(n, negatives) document numbers, -1 where there is none."""
        return np.where((self.expires[rows] > step)[:, None], self.ids[rows], np.int32(-1))
