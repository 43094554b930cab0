"""The optimizers are good citizens of torch.optim."""

import copy
import io
import pickle

import pytest
import torch
import torch._dynamo.testing
from optimizers.kinds import KINDS, WARM_UP, by_optimizer, furthest
from optimizers.problems import PROBLEMS
from torch import nn

from feedline.convergence.fixes.adamw import adamw
from feedline.convergence.fixes.muon import muon
from feedline.convergence.fixes.soap import soap

NAMES = list(KINDS)
MAKERS = {
    **{name: kind.make for name, kind in KINDS.items()},
    "adamw": adamw,
    "muon": muon,
    "soap": soap,
}
CONVOLUTION = PROBLEMS["convolution"]


def make(
    name: str, params=None, lr: float | torch.Tensor = 0.05, **more: object
) -> torch.optim.Optimizer:
    return MAKERS[name](CONVOLUTION.parameters() if params is None else params, lr=lr, **more)


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)


@pytest.mark.parametrize("name", [*NAMES, "muon"])
def test_the_gradient_is_never_changed(name):
    optimizer = make(name, weight_decay=0.1)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for step in range(3):
        optimizer.zero_grad()
        CONVOLUTION.loss(params, step).backward()
        before = [(param.grad, param.grad.clone()) for param in params]

        optimizer.step()

        assert all(
            param.grad is grad and torch.equal(grad, copied)
            for param, (grad, copied) in zip(params, before)
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_step_never_reads_a_value(name):
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in [(3, 4), (3,), (5, 3)]]
    optimizer = make(name, params, weight_decay=0.1)
    for _ in range(2):
        for param in params:
            param.grad = torch.empty_like(param)

        optimizer.step()  # a tensor of the device meta raises when something asks for its value


def started(name: str, params: list[nn.Parameter], steps: int) -> torch.optim.Optimizer:
    optimizer = make(name, params)
    by_optimizer(optimizer, CONVOLUTION, WARM_UP[:steps], params=params)
    return optimizer


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_training_goes_on_the_same_from_its_state_dict(name):
    params, weights, file = CONVOLUTION.parameters(), CONVOLUTION.parameters(), io.BytesIO()
    first = started(name, params, 4)
    torch.save(first.state_dict(), file)
    for weight, param in zip(weights, params):
        weight.data.copy_(param.data)
    second = make(name, weights)

    file.seek(0)
    second.load_state_dict(torch.load(file))

    goes_on = by_optimizer(second, CONVOLUTION, WARM_UP[4:], first=4, params=weights)
    assert (
        furthest(goes_on, by_optimizer(first, CONVOLUTION, WARM_UP[4:], first=4, params=params))
        == 0
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_half_precision_would_round_survives_the_state_dict(name):
    model = network(torch.bfloat16)
    optimizer = make(name, model.parameters())
    model(torch.ones(2, 6, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        for tensor in state.values():
            if not tensor.ndim:
                tensor.fill_(257)  # bfloat16 would make it 256

    loaded = make(name, network(torch.bfloat16).parameters())
    loaded.load_state_dict(optimizer.state_dict())

    for saved, other in zip(optimizer.state.values(), loaded.state.values()):
        for key, tensor in saved.items():
            assert tensor.dtype == other[key].dtype and torch.equal(tensor, other[key])


@pytest.mark.parametrize("name", [*NAMES, "muon"])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))]
)
def test_a_copy_of_it_works(name, copied):
    params = CONVOLUTION.parameters()

    other = copied(started(name, params, 2))

    assert other.param_groups[0]["params"][0] is not params[0]
    by_optimizer(other, CONVOLUTION, WARM_UP[2:], first=2)


@pytest.mark.parametrize("name", NAMES)
def test_parameter_groups_have_numbers_of_their_own(name):
    params, alone = CONVOLUTION.parameters(), CONVOLUTION.parameters()
    groups = [{"params": params[:3], "weight_decay": 0.3}, {"params": params[3:], "lr": 0.01}]

    together = make(name, groups, weight_decay=0.1)
    both = [
        make(name, alone[:3], weight_decay=0.3),
        make(name, alone[3:], lr=0.01, weight_decay=0.1),
    ]
    for step in range(4):
        for members, optimizers in ((params, [together]), (alone, both)):
            for member in members:
                member.grad = None
            CONVOLUTION.loss(members, step).backward()
            for optimizer in optimizers:
                optimizer.step()

    assert furthest([params], [alone]) == 0


@pytest.mark.parametrize("name", [*NAMES, "muon"])
def test_parameters_without_a_gradient_stay_and_begin_their_own_count(name):
    params = CONVOLUTION.parameters()
    optimizer, weights = make(name, params), [param.detach().clone() for param in params]
    params[0].requires_grad_(False)
    for step in range(3):
        optimizer.zero_grad()
        CONVOLUTION.loss(params, step).backward()
        optimizer.step()

    assert torch.equal(params[0], weights[0]) and not torch.equal(params[3], weights[3])
    assert params[0] not in optimizer.state


@pytest.mark.parametrize("name", [*NAMES, "muon"])
def test_a_closure_gives_the_loss_and_the_gradients(name):
    params = CONVOLUTION.parameters()
    optimizer = make(name, params)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = CONVOLUTION.loss(params, 0)
        loss.backward()
        return loss.detach()

    before = float(closure())
    assert float(optimizer.step(closure)) == before
    assert float(closure()) != before


@pytest.mark.parametrize("name", [*NAMES, "muon"])
def test_a_scaler_of_gradients_changes_nothing_and_skips_an_overflow(name):
    model, scaled = network(torch.float32), network(torch.float32)
    plain, optimizer = (
        make(name, each if name == "muon" else each.parameters()) for each in (model, scaled)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    inputs = torch.linspace(-1, 1, 48).reshape(8, 6)
    for number in range(4):
        for each, how in ((model, plain), (scaled, optimizer)):
            how.zero_grad()
            loss = each(inputs).square().mean() * (float("inf") if number == 2 else 1)
            (scaler.scale(loss) if each is scaled else loss).backward()
        if number != 2:
            plain.step()
        scaler.step(optimizer)
        scaler.update()

    assert furthest([list(model.parameters())], [list(scaled.parameters())]) < 1e-6
    assert scaler.get_scale() == 128


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_step_is_one_graph_and_the_same(name):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    plain, params = CONVOLUTION.parameters(), CONVOLUTION.parameters()
    optimizer = make(name, plain, weight_decay=0.1)
    compiled = make(name, params, torch.tensor(0.05).double(), weight_decay=0.1)
    step = torch.compile(compiled.step, backend=counter, fullgraph=True)
    for number in range(6):
        for members in (plain, params):
            for member in members:
                member.grad = None
            CONVOLUTION.loss(members, number).backward()
        optimizer.param_groups[0]["lr"] = 0.05 * (number + 1)
        compiled.param_groups[0]["lr"].fill_(0.05 * (number + 1))
        optimizer.step()
        step()

    assert (
        counter.frame_count == 2
    )  # one graph makes the state, one finds it; no rate makes another
    assert furthest([plain], [params]) < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_a_scheduler_drives_it(name):
    optimizer = make(name)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)

    by_optimizer(optimizer, CONVOLUTION, [1])
    cycle.step()

    assert 0 < optimizer.param_groups[0]["lr"] < 0.1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", [*NAMES, "muon"])
def test_the_memory_layout_of_a_convolution_makes_no_difference(name, layout):
    weights = []
    for memory_format in (torch.contiguous_format, layout):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)).to(
            memory_format=memory_format
        )
        optimizer = make(name, model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3, 8, 8)).square().mean().backward()
            optimizer.step()
        weights.append([param.detach().contiguous() for param in model.parameters()])

    assert furthest(weights[:1], weights[1:]) < (
        1e-3 if name == "muon" else 1e-6
    )  # Muon's matrices are products in bfloat16
