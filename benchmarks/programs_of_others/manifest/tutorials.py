"""github.com/yunjey/pytorch-tutorial, at 0500d3d: lessons without options, whose numbers of epochs
are fixed.
"""

from programs_of_others.data import mnist, text
from programs_of_others.program import Program

REPOSITORY = "yunjey/pytorch-tutorial"


def lesson(
    name: str,
    path: str,
    epochs: int,
    batches: int,
    samples: int,
    train: int = 1000,
    **others: object,
) -> Program:
    """One that trains on MNIST."""
    counts = f"{epochs} epochs of {batches} batches, {samples:,} samples each"
    makes = (mnist("../../data", train),)
    steps = ((epochs * batches, epochs * samples),)
    return Program(
        f"pytorch-tutorial {name}",
        REPOSITORY,
        f"tutorials/{path}/{name}",
        "main.py",
        steps,
        counts,
        makes,
        **others,
    )  # type: ignore[arg-type]


TUTORIALS = [
    lesson("feedforward_neural_network", "01-basics", 5, 10, 1000),
    lesson("logistic_regression", "01-basics", 5, 60, 6000, 6000),
    lesson("convolutional_neural_network", "02-intermediate", 5, 10, 1000),
    lesson("recurrent_neural_network", "02-intermediate", 2, 10, 1000),
    lesson("bidirectional_recurrent_neural_network", "02-intermediate", 2, 10, 1000),
    lesson("generative_adversarial_network", "03-advanced", 200, 2, 200, 200),
    lesson("variational_autoencoder", "03-advanced", 15, 5, 640, 640),
    Program(
        "pytorch-tutorial linear_regression",
        REPOSITORY,
        "tutorials/01-basics/linear_regression",
        "main.py",
        ((60, 900),),
        "60 epochs of one batch of all 15 points",
        needs=("matplotlib",),
        no_input=True,
    ),
    Program(
        "pytorch-tutorial language_model",
        REPOSITORY,
        "tutorials/02-intermediate/language_model",
        "main.py",
        ((15, 300),),
        "5 epochs of 3 batches of 20 rows",
        (text("data/train.txt", 1900, 100),),
    ),
]
