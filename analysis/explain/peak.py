"""The most FLOP/s that a device can do in the arithmetic of a run.

It is a roof, and what MFU is a share of.
"""

from feedline.profiler.ceilings import Ceiling, Ceilings

_NO_CEILINGS = (
    "measure it with `feedline probe -o FILE`, then `feedline report RUN --ceilings FILE`"
)


def peak(ceilings: Ceilings | None, computed_in: str) -> tuple[float | None, str]:
    """Find it in a file of ceilings: the maker's figure before the best round that was measured.

    Args:
        computed_in: as in ``Flop``. Empty: the peak of the model that was probed.

    Returns:
        FLOP/s and where they are from; None and why they are not known.
    """
    if ceilings is None:
        return None, _NO_CEILINGS
    products = [
        product
        for product in ceilings.ceilings
        if product.part == "compute" and product.unit == "FLOP/s" and product.value
    ]
    if not computed_in or not products:
        return _of_the_probe(ceilings, products)
    for how in ("specified", "matmul"):
        for product in products:
            if product.name.startswith(f"compute/{how} ") and _arithmetic(product) == computed_in:
                return product.high or product.value, f"{product.name}: {product.source}"
    return (
        None,
        f"the ceilings file gives no peak FLOP/s for {spoken(computed_in)}, which this run uses",
    )


def spoken(computed_in: str) -> str:
    return "TF32" if computed_in == "tf32" else computed_in


def _arithmetic(product: Ceiling) -> str:
    """Return what a product was computed in.

    An older feedline measured or named float32 with TF32 where the settings allowed it.
    """
    dtype = str(product.settings.get("dtype", ""))
    return "tf32" if dtype == "float32" and product.settings.get("tf32") else dtype


def _of_the_probe(ceilings: Ceilings, products: list[Ceiling]) -> tuple[float | None, str]:
    if not ceilings.peak_flops:
        return None, "the ceilings file gives no peak FLOP/s"
    same = [product for product in products if ceilings.peak_flops in (product.value, product.high)]
    return ceilings.peak_flops, f"{same[0].name}: {same[0].source}" if same else "the ceilings file"
