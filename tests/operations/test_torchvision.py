"""torchvision's transforms and its reading of images."""

import functools
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import io, transforms
from torchvision.transforms import v2

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail
from feedline.profiler.taps.operations import torchvision_
from feedline.profiler.taps.operations.span import collect

PICTURE = torch.arange(3 * 16 * 16, dtype=torch.float32).reshape(3, 16, 16)


class Halve(transforms.Resize):
    """A user's own subclass of a v1 transform."""

    def forward(self, img):
        return super().forward(img) / 2


class Negate(v2.Transform):
    """A user's own v2 transform."""

    def transform(self, inpt, params):
        return -inpt


def of_torchvision(written):
    return [
        (span.name, span.extra)
        for span in written
        if span.stage == Stage.AUGMENT and not span.name.startswith("PIL.")
    ]


def test_each_v1_transform_is_a_span_of_its_class_inside_the_chains(spans):
    chain = transforms.Compose(
        [transforms.Resize((8, 8)), transforms.CenterCrop(4), transforms.ToTensor()]
    )

    written = spans(lambda: chain(Image.new("RGB", (16, 16))))

    assert of_torchvision(written) == [
        ("Resize", 64),
        ("CenterCrop", 16),
        ("ToTensor", 16),
        ("Compose", 16),
    ]


def test_each_v2_transform_is_a_span_of_its_class_inside_the_chains(spans):
    chain = v2.Compose(
        [v2.Resize((8, 8)), v2.RandomApply([v2.CenterCrop(4)], p=1), v2.ToDtype(torch.float32)]
    )

    written = spans(lambda: chain(PICTURE))

    assert of_torchvision(written) == [
        ("Resize", 64),
        ("CenterCrop", 16),
        ("RandomApply", 16),
        ("ToDtype", 16),
        ("Compose", 16),
    ]


def test_the_users_own_subclasses_are_seen(spans):
    chain = v2.Compose([Halve(8), Negate()])

    assert of_torchvision(spans(lambda: chain(PICTURE))) == [
        ("Halve", 64),
        ("Negate", 64),
        ("Compose", 64),
    ]


def test_pils_work_is_inside_the_transforms_span(spans):
    inner, outer = spans(lambda: transforms.Resize(8)(Image.new("RGB", (16, 16))))

    assert (inner.name, outer.name) == ("PIL.resize", "Resize")
    assert (
        outer.start_ns <= inner.start_ns
        and inner.start_ns + inner.wall_ns <= outer.start_ns + outer.wall_ns
    )


def test_every_class_of_transforms_is_covered(taps):
    classes = [
        cls
        for module in (transforms.transforms, transforms.autoaugment)
        for cls in vars(module).values()
        if isinstance(cls, type)
        and cls.__module__ == module.__name__
        and hasattr(cls, "forward") | ("__call__" in vars(cls))
    ]

    bare = [cls.__name__ for cls in classes if not hasattr(cls.__call__, "_torchdynamo_inline")]

    assert len(classes) > 30
    assert bare == ["RandomTransforms"]


def test_random_transforms_draw_the_same_numbers_with_and_without_us(taps):
    chain = transforms.Compose(
        [
            transforms.RandomResizedCrop(8),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.5, 0.5),
        ]
    )
    image = Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3))

    def run():
        torch.manual_seed(0)
        return chain(image).tobytes(), torch.get_rng_state()

    plain, state = run()
    seen = []
    collect(lambda: seen.append(run()))

    assert seen[0][0] == plain
    assert torch.equal(seen[0][1], state)


def test_what_a_transform_raises_passes_unchanged(spans):
    def crop():
        with pytest.raises(TypeError, match="Unexpected type"):
            transforms.CenterCrop(4)("no picture")

    (span,) = spans(crop)

    assert (span.name, span.extra) == ("CenterCrop", 0)


def transform_chain():
    return torch.nn.Sequential(
        transforms.Resize([8], antialias=True), transforms.Normalize([0.5] * 3, [0.5] * 3)
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    "chain", [transform_chain, lambda: v2.Resize([8]), lambda: v2.Normalize([0.5] * 3, [0.5] * 3)]
)
def test_transforms_can_be_scripted(taps, chain):
    module = chain()

    assert torch.equal(torch.jit.script(module)(PICTURE), module(PICTURE))


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize(
    "chain",
    [
        lambda: v2.Resize([8]),
        lambda: v2.Compose([Negate(), v2.CenterCrop(4)]),
        lambda: transforms.CenterCrop(4),
    ],
)
def test_compiled_transforms_are_one_graph(taps, monkeypatch, chain, looked_at):
    module = chain()
    expected = module(PICTURE)
    monkeypatch.setattr(detail, "write", (lambda *_: None) if looked_at else None)
    torch.compiler.reset()

    inside = torch.compile(lambda picture: module(picture), backend="eager", fullgraph=True)
    outermost = torch.compile(module, backend="eager", fullgraph=True)

    assert torch.equal(inside(PICTURE), expected)
    assert torch.equal(outermost(PICTURE), expected)


def test_a_traced_model_keeps_its_transform(taps):
    model = torch.nn.Sequential(transforms.CenterCrop(4), torch.nn.ReLU())

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return True

    called = [node.target for node in Tracer().trace(model).nodes if node.op == "call_module"]

    assert called == ["0", "1"]


@pytest.fixture(scope="module")
def image_operators():
    """Stand-ins for torchvision's compiled operators where they do not load."""
    if hasattr(torch.ops.image, "read_file"):
        yield None
        return
    library = torch.library.Library("image", "DEF")
    library.define("read_file(str filename) -> Tensor")
    library.define("decode_image(Tensor data, int mode, bool apply_exif_orientation) -> Tensor")
    library.impl(
        "read_file",
        lambda path: torch.from_numpy(np.fromfile(path, np.uint8)),
        "CompositeExplicitAutograd",
    )
    library.impl("decode_image", lambda data, mode, exif: pixels(data), "CPU")
    before, io.image._has_image_ops = io.image._has_image_ops, yes
    yield library
    io.image._has_image_ops = before
    library._destroy()


def yes() -> bool:
    return True


def pixels(encoded: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(BytesIO(encoded.numpy().tobytes())))).permute(
        2, 0, 1
    )


def test_torchvision_io_reads_inside_its_decoding(image_operators, spans, tmp_path):
    path = tmp_path / "picture.png"
    Image.new("RGB", (5, 4)).save(path)
    size = path.stat().st_size

    written = [
        span
        for span in spans(lambda: io.read_image(str(path)))
        if span.name.startswith("torchvision.")
    ]

    assert [(span.stage, span.name, span.nbytes, span.extra) for span in written] == [
        (Stage.READ, "torchvision.read_file", size, 0),
        (Stage.DECODE, "torchvision.decode_image", 60, 20),
        (Stage.DECODE, "torchvision.read_image", 60, 20),
    ]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_torchvision_io_can_be_scripted(image_operators, taps, tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(bytes(60))

    assert torch.equal(
        torch.jit.script(io.read_file)(str(path)), torch.zeros(60, dtype=torch.uint8)
    )


def test_torchvision_io_keeps_names_and_signatures(taps):
    for name in (*torchvision_.DECODERS, "read_file"):
        function = getattr(io, name)
        assert function is getattr(io.image, name)
        assert (function.__module__, function.__qualname__) == ("torchvision.io.image", name)


def test_a_partial_transform_is_seen(spans):
    call = functools.partial(transforms.CenterCrop(4), PICTURE)

    assert of_torchvision(spans(call)) == [("CenterCrop", 16)]
