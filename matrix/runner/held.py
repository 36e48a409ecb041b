"""What the sampler knows of one process, while it grows."""

from __future__ import annotations

import dataclasses

from matrix.records import ProcessMemory


@dataclasses.dataclass(kw_only=True)
class Held:
    """What is known of one process; `figures` has the kinds of memory.csv."""

    role: str = "other"
    rank: int | None = None
    first_s: float
    last_s: float
    peak: int = 0
    threads: int = 0  # most seen, as the next one
    descriptors: int = 0
    descriptor_limit: int | None = None
    figures: dict[str, int] = dataclasses.field(default_factory=dict)
    prefix: str  # of its rows, behind time and step
    looked: bytes | None = None  # its statm when its figures were last read

    def record(self, pid: int) -> ProcessMemory:
        figures = self.figures
        return ProcessMemory(
            pid=pid,
            role=self.role,
            rank=self.rank,
            first_s=round(self.first_s, 3),
            last_s=round(self.last_s, 3),
            peak_rss_bytes=self.peak,
            anon_bytes=figures.get("anon", 0),
            file_bytes=figures.get("file", 0),
            shmem_bytes=figures.get("shmem", 0),
            swap_bytes=figures.get("swap", 0),
            pss_bytes=figures.get("pss"),
            uss_bytes=figures.get("uss"),
            huge_bytes=figures.get("huge"),
            minor_faults=figures.get("minor_faults", 0),
            major_faults=figures.get("major_faults", 0),
            threads=self.threads,
            descriptors=self.descriptors or None,
            descriptor_limit=self.descriptor_limit,
        )
