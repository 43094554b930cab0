"""Whether a file is an image, by its first bytes."""

HEAD_BYTES = 16  # the longest signature below, with the box type of ISO media files

# Signature at the file's start -> ending; from the formats' specifications, the set that Pillow reads and people train on.
SIGNATURES = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n\x1a\n": "png",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
    b"II*\x00": "tif",
    b"MM\x00*": "tif",
    b"\x00\x00\x00\x0cjP  \r\n": "jp2",
    b"\xff\x4f\xff\x51": "j2k",
}
BRANDS = {b"avif": "avif", b"avis": "avif", b"heic": "heic", b"heix": "heic", b"mif1": "heic"}


def ending(head: bytes) -> str | None:
    """The ending that belongs to the content; None: no image that is known here.

    Args:
        head: the first ``HEAD_BYTES`` bytes, or fewer where the file is shorter.
    """
    for signature, name in SIGNATURES.items():
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0":
        return "bmp"
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3] in (b" ", b"\t", b"\n", b"\r"):
        return "pnm"
    return BRANDS.get(head[8:12]) if head[4:8] == b"ftyp" else None
