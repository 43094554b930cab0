"""Every program that is run."""

from programs_of_others.manifest.karpathy import KARPATHY
from programs_of_others.manifest.libraries import LIBRARIES
from programs_of_others.manifest.others import OTHERS
from programs_of_others.manifest.pytorch_examples import PYTORCH_EXAMPLES
from programs_of_others.manifest.pytorch_gan import PYTORCH_GAN
from programs_of_others.manifest.tutorials import TUTORIALS
from programs_of_others.manifest.unseen import UNSEEN
from programs_of_others.manifest.unseen_second import UNSEEN_SECOND

PROGRAMS = [
    *PYTORCH_EXAMPLES,
    *KARPATHY,
    *PYTORCH_GAN,
    *TUTORIALS,
    *LIBRARIES,
    *OTHERS,
    *UNSEEN,
    *UNSEEN_SECOND,
]
#: The cheapest of each kind: scripts/test runs them where it is given the checkouts.
QUICK = (
    "mnist",
    "mnist_rnn",
    "vae",
    "regression",
    "nanoGPT",
    "minGPT adder",
    "makemore bigram, 1 worker",
    "PyTorch-GAN gan",
    "PyTorch-GAN wgan",
    "pytorch-tutorial linear_regression",
    "accelerate gradient_accumulation",
    "PyG mutag_gin",
    "pygcn",
)
