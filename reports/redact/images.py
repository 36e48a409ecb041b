"""Images without what they say beside the picture: place, time, camera, author, comments."""

from __future__ import annotations

import re
import struct

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_PNG_KEPT = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD", b"pHYs"}
_SVG_TEXT = re.compile(rb"<metadata\b.*?</metadata>|<metadata\b[^>]*/>|<!--.*?-->|<rdf:RDF\b.*?</rdf:RDF>", re.DOTALL)


def without_metadata(data: bytes) -> bytes:
    """The same picture; what is no image, or is damaged, comes back as it is."""
    if data.startswith(PNG):
        return _png(data)
    if data.startswith(JPEG):
        return _jpeg(data)
    return _SVG_TEXT.sub(b"", data) if b"<svg" in data[:2048] else data


def _png(data: bytes) -> bytes:
    """Without text, time and EXIF chunks, and without what follows the end."""
    kept, position = [PNG], len(PNG)
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        kind, end = data[position + 4 : position + 8], position + 12 + length
        if kind in _PNG_KEPT:
            kept.append(data[position:end])
        if kind == b"IEND":
            break
        position = end
    return b"".join(kept)


def _jpeg(data: bytes) -> bytes:
    """Without comments and application segments but the first (JFIF) and Adobe's, which says how colours are stored."""
    kept, position = [JPEG], 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xDA:  # the picture itself follows
            break
        (length,) = struct.unpack_from(">H", data, position + 2)
        end = position + 2 + length
        if not (marker == 0xFE or (0xE1 <= marker <= 0xEF and marker != 0xEE)):
            kept.append(data[position:end])
        position = end
    return b"".join([*kept, data[position:]])
