"""Recognises images by their first bytes, and checks that they are complete."""

HEAD_BYTES = 16  # the longest signature below, with the box type of ISO media files

# Signature at the file's start -> ending; from the formats' specifications, the set that Pillow reads and people train on.
_SIGNATURES = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n\x1a\n": "png",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
    b"II*\x00": "tif",
    b"MM\x00*": "tif",
    b"\x00\x00\x00\x0cjP  \r\n": "jp2",
    b"\xff\x4f\xff\x51": "j2k",
}
_BRANDS = {b"avif": "avif", b"avis": "avif", b"heic": "heic", b"heix": "heic", b"mif1": "heic"}


def ending(head: bytes) -> str | None:
    """The extension for the content; None if it is not a known image.

    Args:
        head: the first ``HEAD_BYTES`` bytes, or fewer where the file is shorter.
    """
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0":
        return "bmp"
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3] in (b" ", b"\t", b"\n", b"\r"):
        return "pnm"
    return _BRANDS.get(head[8:12]) if head[4:8] == b"ftyp" else None


def is_cut_off(value: bytes, kind: str | None) -> bool:
    """Whether a JPEG or WebP file is truncated, as after an interrupted download. Pillow refuses to decode those.

    Args:
        value: the whole file.
        kind: of ``ending``.
    """
    if kind == "jpg":
        return value.rfind(b"\xff\xd9", _scan(value)) < 0  # EOI; one before the scan ends a thumbnail. ITU-T T.81, B.1.1.3
    return kind == "webp" and int.from_bytes(value[4:8], "little") + 8 > len(value)


def _scan(value: bytes) -> int:
    """Where the first scan of a JPEG begins: behind segments that say their length."""
    at = 2
    while value[at : at + 1] == b"\xff" and value[at + 1 : at + 2] != b"\xda":
        at += 1 if value[at + 1 : at + 2] == b"\xff" else 2 + int.from_bytes(value[at + 2 : at + 4], "big")
    return at
