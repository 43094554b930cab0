"""github.com/eriklindernoren/PyTorch-GAN, at 36d3c77: two or three optimizers that take turns."""

from programs_of_others.data import empty, mnist
from programs_of_others.program import Program

PRINTED = r"^\[Epoch \d+/2\] \[Batch \d+/20\]"
#: Each model's backward pass goes on through the other one, whose gradients are cleared then.
UNUSED = ("unused_gradients",)


def gan(name: str, *options: str, **others: object) -> Program:
    """One that trains on MNIST, 2 epochs of 20 batches of 16."""
    words = f"{name}.py --n_epochs 2 --batch_size 16 {' '.join(options)}"
    settings = {"printed": PRINTED, **others}
    makes = (mnist("../../data/mnist"), empty("images"))
    return Program(
        f"PyTorch-GAN {name}",
        "eriklindernoren/PyTorch-GAN",
        f"implementations/{name}",
        words,
        ((40, 640),),
        "2 epochs of 20 batches of 16, as it prints",
        makes,
        **settings,  # type: ignore[arg-type]
    )


PYTORCH_GAN = [
    gan("gan", causes=UNUSED),
    gan("aae"),
    gan("acgan", "--img_size 16"),
    gan("cgan", causes=UNUSED),
    gan("dcgan", "--img_size 16"),
    gan("infogan", "--img_size 16"),
    gan("lsgan", "--img_size 16"),
    gan("relativistic_gan"),
    gan("ebgan", "--img_size 16", causes=UNUSED),
    gan("wgan", printed=None),
    gan("wgan_gp", printed=None, causes=UNUSED),
]
