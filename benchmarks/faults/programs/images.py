"""A training on image files, whose input is as slow as its arguments say.

images.py FOLDER --batch 8 --size 64 --transform crop --workers 2
"""

import io
import multiprocessing
import pathlib
import time
import urllib.request

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms
from training import loader, options, train

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def transform(name, size):
    """What makes a sample of a picture."""
    tensor, crop = transforms.PILToTensor(), transforms.CenterCrop(size)
    return {
        "crop": transforms.Compose([crop, tensor]),
        "resized": transforms.Compose([transforms.RandomResizedCrop(size), tensor]),
        "heavy": transforms.Compose(
            [
                transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
                transforms.GaussianBlur(23),
                transforms.RandomRotation(30),
                crop,
                tensor,
            ]
        ),
        "floats": transforms.Compose(
            [crop, transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
        ),
    }[name]


class Photos(Dataset):
    def __init__(self, given):
        self.given = given
        self.files = sorted(file for file in given.folder.iterdir() if file.is_file())
        self.transform = (
            None
            if given.transform in ("albumentations", "arrays")
            else transform(given.transform, given.size)
        )
        self.lock = multiprocessing.get_context(given.start).Lock() if given.lock else None
        self.ballast = ballast(given.ballast)
        self.kept = [self.decode(file) for file in self.files] if given.keep else []
        self.decoded = {}

    def __len__(self):
        return self.given.batch * self.given.steps

    def __getitem__(self, index):
        if self.kept:
            return self.kept[index % len(self.kept)]
        file = self.files[index % len(self.files)]
        if self.given.sleep_ms:
            time.sleep(self.given.sleep_ms / 1e3)  # a rate limit
        if self.lock is None:
            return self.decode(self.fetched(file, index))
        with self.lock:  # one handle for all workers
            return self.decode(self.fetched(file, index))

    def fetched(self, file, index):
        """The file here, or what a server sends of it."""
        if not self.given.server:
            return file
        late_ms = (
            self.given.far_ms
            if self.given.far_ms and index % self.given.far_every == 7
            else self.given.near_ms
        )
        with urllib.request.urlopen(f"{self.given.server}{file.name}?ms={late_ms}") as answer:
            return io.BytesIO(answer.read())

    def decode(self, file):
        if self.given.decoder == "video":
            return self.frame(file)
        if self.given.decoder == "cv2":
            image = cv2.imdecode(np.frombuffer(file.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
            return torch.from_numpy(
                cv2.resize(image, (self.given.size, self.given.size), interpolation=cv2.INTER_AREA)
            )
        if self.given.decoder == "albumentations":
            return torch.from_numpy(self.augmented(np.asarray(Image.open(file).convert("RGB"))))
        image = self.image(file)
        return np.array(image) if self.transform is None else self.transform(image)

    def image(self, file):
        """A picture, which each worker may keep for the next epoch."""
        if not self.given.cached:
            return Image.open(file).convert("RGB")
        if file not in self.decoded:
            self.decoded[file] = Image.open(file).convert("RGB")
        return self.decoded[file]

    def frame(self, file):
        """One of a video: those before it are decoded too."""
        video = cv2.VideoCapture(str(file))
        for _ in range(self.given.frames):
            image = video.read()[1]
        size = self.given.size
        return torch.from_numpy(image[:size, :size].copy())

    def augmented(self, image):
        import albumentations

        if not hasattr(self, "steps"):
            cv2.setNumThreads(0)
            steps = [
                albumentations.GaussianBlur((21, 21), p=1),
                albumentations.RandomBrightnessContrast(p=1),
                albumentations.ColorJitter(p=1),
            ]
            self.steps = albumentations.Compose(
                [*steps, albumentations.CenterCrop(self.given.size, self.given.size)]
            )
        return self.steps(image=image)["image"]


def ballast(count):
    """Annotations as a dataset of captions has them: Python objects."""
    return [
        {"id": number, "caption": f"photograph number {number}", "box": [number, number + 1]}
        for number in range(count)
    ]


def stacked(samples):
    return torch.from_numpy(np.stack(samples))


def arrays(samples):
    return np.stack(samples)


def concatenated(samples):
    return torch.cat([sample[None] for sample in samples])


COLLATES = {"default": None, "stacked": stacked, "arrays": arrays, "concatenated": concatenated}


def inputs(batch):
    """3 x 32 x 32 numbers of each picture, wherever its channels are."""
    batch = torch.as_tensor(batch)
    if batch.shape[-1] == 3:
        batch = batch.permute(0, 3, 1, 2)
    batch = batch[:, :, :: max(1, batch.shape[2] // 32), :: max(1, batch.shape[3] // 32)][
        :, :, :32, :32
    ]
    return batch.float() if batch.is_floating_point() else batch.float() / 255


def arguments():
    parser = options(__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--transform", default="crop")
    parser.add_argument("--decoder", default="pil")
    parser.add_argument("--collate", choices=COLLATES, default="default")
    parser.add_argument(
        "--keep", action="store_true", help="decode all files once and keep the samples"
    )
    parser.add_argument(
        "--cached", action="store_true", help="each worker keeps all pictures that it decodes"
    )
    parser.add_argument(
        "--lock", action="store_true", help="workers make their samples one after another"
    )
    parser.add_argument("--sleep-ms", type=float, default=0.0)
    parser.add_argument("--server", default="", help="URL to fetch files from")
    parser.add_argument("--near-ms", type=float, default=1.0, help="after which the server answers")
    parser.add_argument("--far-ms", type=float, default=0.0, help="and one time in ...")
    parser.add_argument("--far-every", type=int, default=20)
    parser.add_argument(
        "--frames", type=int, default=1, help="of a video, before and with the one that is used"
    )
    parser.add_argument("--ballast", type=int, default=0, help="Python objects in the dataset")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = arguments()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(1),
    )
    model(torch.zeros(1, 3, 32, 32))
    train(model, loader(Photos(given), given, collate_fn=COLLATES[given.collate]), given, inputs)
