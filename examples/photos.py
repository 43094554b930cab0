"""Make an ImageFolder dataset of real JPEG photographs: crops of those that the scikit-image
package ships. Nothing is downloaded.

python examples/photos.py data/photos --count 600
"""

import argparse
import importlib.util
import random
import sys
from pathlib import Path

from PIL import Image

# Colour photographs inside the scikit-image wheel; each is one class.
SOURCES = {
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
}
QUALITY = 95  # an average of about 65 kB at 500x400, the order of an ImageNet file


def photographs() -> dict[str, Image.Image]:
    """Load the source photographs, class name -> RGB image.

    Raises:
        SystemExit: scikit-image is not installed.
    """
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        sys.exit(
            "photos.py: the photographs are inside scikit-image, which is not installed: pip "
            "install scikit-image"
        )
    folder = Path(spec.origin).parent / "data"
    return {name: Image.open(folder / file).convert("RGB") for name, file in SOURCES.items()}


def crop(photograph: Image.Image, size: tuple[int, int], dice: random.Random) -> Image.Image:
    """Cut 40 to 100 % of each side at a random place, mirror half of them, and scale to about
    ``size`` (width, height; +-20 %).
    """
    share, stretch = dice.uniform(0.4, 1.0), dice.uniform(0.8, 1.2)
    width, height = (round(side * stretch) for side in size)
    scale = share * min(photograph.width / width, photograph.height / height)
    cut = (scale * width, scale * height)
    left, top = (
        dice.uniform(0, photograph.width - cut[0]),
        dice.uniform(0, photograph.height - cut[1]),
    )
    box = (left, top, left + cut[0], top + cut[1])
    image = photograph.resize((width, height), Image.Resampling.BICUBIC, box)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if dice.random() < 0.5 else image


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, help="where to put it; files that are there already are kept"
    )
    parser.add_argument(
        "--count", type=int, default=600, help="number of photographs (default 600)"
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=(500, 400),
        metavar=("WIDTH", "HEIGHT"),
        help="about this many pixels",
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    sources = list(photographs().items())
    for number in range(args.count):
        name, photograph = sources[number % len(sources)]
        path = args.folder / name / f"{number:06d}.jpg"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        image = crop(photograph, tuple(args.size), random.Random(f"{args.seed}-{number}"))
        unfinished = path.with_suffix(".part")
        image.save(unfinished, "JPEG", quality=QUALITY)
        unfinished.rename(path)
    files = list(args.folder.glob("*/*.jpg"))
    total = sum(file.stat().st_size for file in files)
    print(
        f"{len(files)} photographs in {len(sources)} classes, {total / 1e6:.1f} MB: {args.folder}"
    )


if __name__ == "__main__":
    main()
