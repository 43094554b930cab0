"""libjpeg-turbo decodes, albumentations augments, on uint8 arrays; they become float32 on the device."""

from feedline.pipelines.loaders import decode
from feedline.pipelines.loaders.opencv_albumentations import make_with
from feedline.pipelines.loaders.protocol import LoaderKind
from feedline.pipelines.loaders.requirements import needs

KIND = LoaderKind(
    "simplejpeg-albu",
    "DataLoader, libjpeg-turbo, albumentations on uint8",
    needs("simplejpeg", "PIL", "cv2", "albumentations"),
    make_with(decode.libjpeg_turbo),
)
