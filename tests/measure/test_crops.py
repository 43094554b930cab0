"""Whether samples are cut to their size first, from the order of a sample's transforms."""

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.costs import SampledDetails
from feedline.analysis.measure.crops import cut_first
from feedline.analysis.measure.model import Operation
from feedline.profiler.events import Stage


def made_of(*names, samples=3):
    """Samples that each go through these transforms, inside of a Compose."""
    worker = MadeUp(role="worker")
    worker.names = dict(enumerate(["Compose", *names], 1))
    for at in range(0, samples * 1000, 1000):
        worker.span(Stage.SAMPLE, at, at + 900).span(Stage.AUGMENT, at + 10, at + 890, source=1)
        for number, _ in enumerate(names, 2):
            begin = at + 100 * number
            worker.span(Stage.AUGMENT, begin, begin + 90, source=number)
    return worker.process()


def operations(*names, stage="augment"):
    """The first takes most, but for what a Compose takes with them."""
    seconds = [5.0, 3.0, 0.2, 0.1]
    return [Operation(stage, "Compose", 9.0, 9.0, 1.0)] + [
        Operation(stage, name, wall_s, wall_s, 1.0) for name, wall_s in zip(names, seconds)
    ]


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (("RandomCrop", "ColorJitter", "Blur"), True),
        (("ColorJitter", "RandomCrop", "Blur"), True),
        (("ColorJitter", "Blur", "RandomCrop"), False),
        (("ColorJitter", "Blur"), None),
    ],
)
def test_the_order_of_transforms_tells(order, told):
    assert cut_first(operations("Blur", "ColorJitter", "RandomCrop"), [made_of(*order)]) is told


def test_where_the_cut_itself_takes_most_nothing_is_told():
    process = made_of("RandomResizedCrop", "Blur")

    assert cut_first(operations("RandomResizedCrop", "Blur"), [process]) is None
    assert cut_first(operations("Blur", stage="decode"), [process]) is None


def test_pixels_of_several_images_in_a_sample_are_compared_with_as_many():
    """As where a batch is made in one call, of a stream's batch, or of a clip's frames."""
    worker = MadeUp(role="worker")
    worker.span(Stage.SAMPLE, 0, 1000, nbytes=4, extra=1)
    for image in range(4):
        worker.span(Stage.DECODE, 10 + 50 * image, 50 + 50 * image, extra=3600)
    for image in range(4):
        worker.span(Stage.AUGMENT, 300 + 50 * image, 340 + 50 * image, extra=1000)

    details = SampledDetails.of(worker.process(), frozenset({0}))

    assert details.weighted_mean(details.decoded) == 3600
    assert details.weighted_mean(details.output) == 1000
