"""Stores: a dataset packed for fast reading, one file per format.

    feedline pack DIR -o STORE --kind lmdb

What a packed store's folder holds:

    manifest.json    written last: without it the store is not whole, and is not opened
    index.bin        64 bytes a sample: where it is, how long, its label and checksums (index.py)
    paths.bin        the samples' paths, one after another
    data-00000.rec   and so on; with data-00000.idx where other libraries want one. LMDB: data.mdb
    pack.json        only while packing: what is being packed, so that a pack that was killed goes on
"""

from feedline.pipelines.stores.index import LeftOut, Progress, Store
from feedline.pipelines.stores.kinds import STORE_KINDS, Verified, open_store, verify
from feedline.pipelines.stores.packing import Packed, pack

__all__ = [
    "LeftOut",
    "Packed",
    "Progress",
    "STORE_KINDS",
    "Store",
    "Verified",
    "open_store",
    "pack",
    "verify",
]
