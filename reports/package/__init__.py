"""One archive for an outside expert: what was asked, found and doubted, the evidence, and what runs it again; without secrets."""

from reports.package.archive import UnsafePackage, mismatches, unpack
from reports.package.contents import Sources, Wish
from reports.package.packing import CAP_BYTES, Draft, LeakFound, draft, pack

__all__ = ["CAP_BYTES", "Draft", "LeakFound", "Sources", "UnsafePackage", "Wish", "draft", "mismatches", "pack", "unpack"]
