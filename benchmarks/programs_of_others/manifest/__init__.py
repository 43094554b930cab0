"""Every program that is run."""

from programs_of_others.manifest.karpathy import KARPATHY
from programs_of_others.manifest.libraries import LIBRARIES
from programs_of_others.manifest.others import OTHERS
from programs_of_others.manifest.pytorch_examples import PYTORCH_EXAMPLES
from programs_of_others.manifest.pytorch_gan import PYTORCH_GAN
from programs_of_others.manifest.tutorials import TUTORIALS

PROGRAMS = [*PYTORCH_EXAMPLES, *KARPATHY, *PYTORCH_GAN, *TUTORIALS, *LIBRARIES, *OTHERS]
