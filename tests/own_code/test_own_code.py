"""What the program's own code takes between models, backward passes and updates is told by function
and by line, of real trainings.
"""

import functools
import sys
import time
import weakref

import numpy as np
import pytest
import torch
from ledger.test_recorded_ledger import recorded as run_of_records
from measure.made_up_records import MadeUp
from own_code.loops import Timed, at_the_end, train
from text.breath import advised, said
from torch.utils.data import DataLoader, TensorDataset

from feedline.analysis.measure import own_code as own_code_of_run
from feedline.analysis.measure.rank_metrics import step_summary
from feedline.profiler.events import Flag, Stage
from feedline.profiler.taps.own_code import stretches
from feedline.profiler.taps.own_code.python_calls import CalledTimes, RunningFrame
from feedline.profiler.taps.own_code.stretches import _ran_throughout
from feedline.profiler.taps.source_names import NAME_BYTES, name_of


class Clock:
    """Functions that a loop calls, each with a timer around it: seconds by name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def takes(self, name: str, seconds: float) -> None:
        begin = time.perf_counter()
        while time.perf_counter() < begin + seconds:
            helper()
        self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begin


def helper() -> int:
    return sum(range(10_000))


def project(clock: Clock) -> None:
    clock.takes("project", 0.004)


def write_log(clock: Clock) -> None:
    clock.takes("write_log", 0.001)


def model() -> torch.nn.Module:
    return torch.nn.Linear(32, 32)


def trained(step, steps: int = 60, net: torch.nn.Module | None = None) -> None:
    """Update a model as many times;

    ``step`` gets it and the number of the step, and returns a loss.
    """
    net = net or model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for number in range(steps):
        loss = step(net, number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def functions(own) -> dict[str, float]:
    """Its parts, seconds by name."""
    return {one.name: one.s for one in own.functions}


def seconds_of(own, name: str) -> float:
    return sum(s for shown, s in functions(own).items() if shown.startswith(f"{name} ("))


@pytest.mark.quiet
def test_functions_that_the_loop_calls_take_what_timers_in_them_say(recorded):
    clock, data = Clock(), torch.randn(256, 32)

    def step(net, number):
        project(clock)
        loss = net(data[torch.randint(256, (16,))]).square().mean()
        write_log(clock)
        return loss

    report, _ = recorded(lambda: trained(step, 300))

    own = report.step.own_code
    assert seconds_of(own, "project") == pytest.approx(clock.spent["project"] / 300, rel=0.15)
    assert seconds_of(own, "write_log") == pytest.approx(clock.spent["write_log"] / 300, rel=0.25)
    assert sum(functions(own).values()) <= own.s * 1.001 <= report.step.mean_s
    found = report.findings[0]
    assert (
        found.rule_id == "own_code"
        and found.severity.value == "high"
        and found.message.endswith(" in project()")
        and found.place.startswith("tests/own_code/test_own_code.py:")
    )
    assert report.verdict.limit.startswith("Bound by the training loop: Code outside the model")


@pytest.mark.quiet
def test_lines_of_the_loop_itself_are_named(recorded):
    data = torch.randn(64, 32)

    def loop():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(400):
            total = 0
            for number in range(150_000):
                total += number
            loss = net(data).square().mean()
            loss.backward()
            optimizer.step()

    report, _ = recorded(loop)

    here = loop.__code__.co_firstlineno
    # from optimizer.step() around to net(data)
    lines = f"lines {here + 9} to {here + 7} of the next pass (test_own_code.py)"
    assert functions(report.step.own_code).get(lines, 0.0) > 0.8 * report.step.own_code.s
    assert report.findings[0].rule_id == "own_code"


@pytest.mark.quiet
def test_a_function_that_calls_the_model_itself_is_named_and_the_model_is_none_of_its_time(
    recorded,
):
    """As a solver of differential equations."""
    clock, data = Clock(), torch.randn(64, 32)

    def substep(net, x):
        clock.takes("substep", 0.0003)
        return net(x)

    def solve(net):
        x = data
        for _ in range(24):
            x = substep(net, x)
        return x

    report, _ = recorded(lambda: trained(lambda net, number: solve(net).square().mean(), 200))

    (solver,) = (one for one in report.step.own_code.functions if one.name.startswith("a lambda ("))
    assert solver.s == pytest.approx(clock.spent["substep"] / 200, rel=0.25)
    assert solver.mainly.startswith(("solve (", "Clock.takes (", "takes (", "helper ("))


def validated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@validated
@validated
def score() -> None:
    end = time.perf_counter() + 0.004
    while time.perf_counter() < end:
        pass


@pytest.mark.long
def test_a_decorated_function_is_named_and_not_its_decorator(recorded):
    """As scikit-learn's metrics, which all are the wrapper of one decorator."""
    data = torch.randn(64, 32)

    report, _ = recorded(
        lambda: trained(lambda net, _: (score(), net(data).square().mean())[1], 400)
    )

    (found,) = (one for one in report.findings if one.rule_id == "own_code")
    assert found.message.endswith(" in score()") and "wrapper" not in said(found)


@pytest.mark.quiet
def test_what_only_some_steps_do_counts_with_its_part_of_them(recorded):
    """A step is not looked at more often because it, or the one before it, is long."""
    clock, data = Clock(), torch.randn(64, 32)

    def step(net, number):
        clock.takes("always", 0.002)
        if number % 10 == 9:
            project(clock)
            project(clock)
            project(clock)
        return net(data).square().mean()

    report, main = recorded(lambda: trained(step, 1200))

    looks = main.view(Stage.OWN_CODE)
    assert 50 < looks["looks"].sum() < 0.8 * 4 * 1200
    own = report.step.own_code
    (part,) = (one for one in own.functions if one.name.startswith("project ("))
    assert part.low_s <= clock.spent["project"] / 1200 <= part.high_s


@pytest.mark.quiet
def test_waiting_for_a_loader_is_none_of_it(recorded):
    class Slow(TensorDataset):
        def __getitem__(self, index):
            time.sleep(0.0005)
            return super().__getitem__(index)

    clock, loader = Clock(), DataLoader(Slow(torch.randn(1920, 32)), batch_size=16)

    def loop():
        batches = iter(loader)

        def step(net, number):
            (x,) = next(batches)
            loss = net(x).square().mean()
            write_log(clock)
            return loss

        trained(step, 120)

    report, _ = recorded(loop)

    own = report.step.own_code
    assert seconds_of(own, "write_log") == pytest.approx(clock.spent["write_log"] / 120, rel=0.5)
    assert own.s < 0.5 * report.step.mean_s and not [
        name for name in functions(own) if "next" in name or "getitem" in name
    ]


@pytest.mark.quiet
def test_rollouts_between_steps_have_their_own(recorded):
    clock, data = Clock(), torch.randn(16, 32)

    def play(net):
        for _ in range(30):
            with torch.no_grad():
                net(data)
            clock.takes("game", 0.0003)

    def step(net, number):
        if number % 5 == 0:
            play(net)
        return net(data).square().mean()

    report, main = recorded(lambda: trained(step, 200))

    assert (main.of(Stage.OWN_CODE)["flags"] & Flag.GRAD == 0).any()
    whole = report.step.evaluation_code
    assert sum(functions(whole).values()) == pytest.approx(clock.spent["game"], rel=0.5)
    told = next(one for one in report.findings if one.rule_id == "evaluation_time")
    assert "in total, outside the model" in said(told)


def test_what_follows_the_last_sample_of_an_epoch_is_no_part_of_its_evaluation(recorded):
    """Samples are drawn after each epoch: what lies between is evaluation, and what follows, until
    the loader is asked, is code of the loop.
    """
    clock, loader = Clock(), DataLoader(TensorDataset(torch.randn(80, 32)), batch_size=16)

    def loop():
        net = torch.nn.Linear(32, 32)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for _ in range(80):
            for (x,) in loader:
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            with torch.no_grad():
                for _ in range(4):
                    project(clock)
                    net(x)
                write_log(clock)

    _, main = recorded(loop)

    together: dict[int, set[str]] = {}
    for called in main.view(Stage.CALLED):
        if not called["flags"] & Flag.GRAD:
            name = main.names[int(called["source"])].partition(" (")[0]
            together.setdefault(int(called["start"]), set()).add(name)
    assert {"project", "write_log"} <= set().union(*together.values())
    assert not any({"project", "write_log"} <= names for names in together.values())


def test_what_few_looks_saw_may_be_as_frequent_as_chance_allows():
    """Once in ten looks, the last of which stands for most: it may be in every second step, or in
    one of a hundred.
    """
    whole, part = np.array([1.0] * 9 + [9.0]), np.array([0.5] + [0.0] * 9)

    low, high = own_code_of_run._interval(part, whole)

    assert low < 0.01 and high > 0.25
    assert own_code_of_run._interval(whole / 2, whole) == (0.5, 0.5)


MS = 1_000_000


def test_a_long_step_that_was_not_looked_at_is_no_functions_time():
    """As the last of an epoch, in which something is computed once."""
    run, at = MadeUp(), 0
    run.names[7] = "log (train.py:9)"
    for step in range(40):
        run.forward(at, at + 2 * MS).backward(at + 2 * MS, at + 4 * MS)
        run.update(at + 4 * MS, at + 5 * MS)
        at += 5 * MS
        if step % 8 == 5:
            run.span(Stage.OWN_CODE, at, at + 3 * MS, extra=1, flags=Flag.GRAD)
            run.span(Stage.CALLED, at, at + 3 * MS, source=7, cpu=3 * MS, flags=Flag.GRAD)
        at += 300 * MS if step == 20 else 3 * MS
    rank = run_of_records(run, 0, at)
    step = step_summary(rank)

    code = own_code_of_run.of_steps(rank, step)

    assert code.s == pytest.approx(step.stages["other"])
    assert code.few_s > 0.6 * code.s
    assert [one.s for one in code.functions] == [pytest.approx(3e-3, rel=0.1)]


def test_nothing_of_the_program_lives_longer_because_it_is_looked_at(recorded):
    alive = []

    def make(net):
        local = torch.randn(8, 32)
        alive.append(weakref.ref(local))
        return net(local).square().mean()

    def step(net, number):
        loss = make(net)
        loss.backward()
        loss = net(torch.zeros(1, 32)).square().mean()
        assert alive[-1]() is None
        return loss

    _, main = recorded(lambda: trained(step, 60))

    assert main.of(Stage.OWN_CODE)["extra"].sum() > 4


def test_a_profile_function_of_the_program_is_left_alone(recorded):
    seen, data = [], torch.randn(16, 32)

    def own(frame, event, argument):
        seen.append(event)

    def loop():
        sys.setprofile(own)
        try:
            trained(lambda net, number: net(data).square().mean(), 20)
            assert sys.getprofile() is own
        finally:
            sys.setprofile(None)

    report, main = recorded(loop)

    assert seen and not len(main.of(Stage.OWN_CODE)) and report.step.own_code is None


def test_where_calls_cannot_be_observed_the_rest_is_recorded(recorded, monkeypatch):
    """As where other tools have all ids of sys.monitoring."""

    def none_is_free():
        raise RuntimeError("no tool id of sys.monitoring is free")

    monkeypatch.setattr(stretches, "CallTimes", none_is_free)
    made = Timed()

    report, main = recorded(lambda: train(at_the_end(made.get_batch)))

    assert not len(main.of(Stage.OWN_CODE))  # on a slow machine, stacks may show it
    assert report.step.stages["input"] > 0


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor"
)  # dynamo's own, of what it traces
def test_a_compiled_function_is_named_and_not_what_torch_calls_it_with(recorded):
    def backend(graph, _):
        return graph.forward

    @torch.compile(backend=backend)
    def loss_of(y):
        for _ in range(300):
            y = y.sin()
        return y.square().mean()

    data = torch.randn(16, 32)

    report, _ = recorded(lambda: trained(lambda net, number: loss_of(net(data)), 200))

    names = [name.partition(" (")[0] for name in functions(report.step.own_code)]
    assert "loss_of" in names and not {"compile_wrapper", "_fn"} & set(names)


def test_after_the_training_no_call_is_observed(recorded):
    data = torch.randn(16, 32)

    def loop():
        trained(lambda net, number: net(data).square().mean(), 20)

    recorded(loop)

    assert sys.getprofile() is None and sys.gettrace() is None
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(number) for number in (3, 4)] == [None, None]


def test_a_later_call_in_the_place_of_an_earlier_one_has_not_run_all_the_while():
    """Its frame may have the same address."""
    loop, predict = trained.__code__, helper.__code__
    before = [RunningFrame(1, loop, 10), RunningFrame(2, predict, 4)]
    after = [RunningFrame(1, loop, 20), RunningFrame(2, predict, 4)]

    again = _ran_throughout(
        before,
        after,
        CalledTimes({id(predict): 5}, {id(predict): 5}, {}, {id(predict): predict}, 0),
    )
    same = _ran_throughout(before, after, CalledTimes({}, {}, {}, {}, 0))

    assert [one.code for one, _ in again] == [loop]
    assert [one.code for one, _ in same] == [loop, predict]


def test_a_name_that_is_too_long_for_a_record_keeps_its_line_numbers():
    def code(file, name="step"):
        space = {}
        exec(compile(f"def {name}(): ...", file, "exec"), space)
        return space[name].__code__

    long = "sac_continuous_action_with_many_words.py"

    assert (
        name_of(code("train.py"), (1296, 1211), around=True)
        == "lines 1296 to 1211 of the next pass (train.py)"
    )
    assert (
        name_of(code(long), (1296, 1211), around=True)
        == "lines 1296 to 1211 of the next pass (sac_continuous_…)"
    )
    inside = "/usr/lib/python3/site-packages/torch_geometric/utils/_negative_sampling.py"
    assert (
        name_of(code(inside, "negative_sampling"))
        == "negative_sampling (torch_geo…/_negative_sampling.py:1)"
    )
    assert name_of(
        code("train.py", "a_function_with_a_very_long_name_of_many_words_more")
    ).endswith("… (train.py:1)")
    assert all(
        len(name_of(code(long, "ü" * 60), lines).encode()) <= NAME_BYTES for lines in (None, (1, 2))
    )
    library = "/lib/site-packages/stable_baselines3/common/on_policy_algorithm_with_words.py"
    assert name_of(code(library, "collect_rollouts")).endswith(":1)")
    assert len(name_of(code(library, "collect_rollouts")).encode()) <= NAME_BYTES


@pytest.mark.quiet
def test_the_programs_own_lines_are_named_and_not_the_library_that_they_call(recorded):
    data, target = torch.randn(20_000, 32), torch.randint(32, (20_000,))

    def loop():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(1000):
            loss = torch.nn.functional.cross_entropy(net(data), target, label_smoothing=0.1)
            loss.backward()
            optimizer.step()

    report, main = recorded(loop)

    names = [one.name for one in report.step.own_code.functions]
    assert not [name for name in names if name.startswith("cross_entropy")]
    (mainly,) = {
        one.mainly
        for one in report.step.own_code.functions
        if one.mainly.startswith("cross_entropy")
    }
    assert mainly.startswith("cross_entropy (torch…/functional.py:")
    (found,) = (one for one in report.findings if one.rule_id == "own_code")
    assert "Profile cross_entropy" not in advised(found) and "of an installed library" in advised(
        found
    )


def test_code_of_an_evaluation_with_gradients_is_no_code_of_steps():
    """A test() without torch.no_grad(): what was looked at between its forwards is of both."""
    run, at = MadeUp(), 0
    run.names.update({7: "log (train.py:9)", 8: "score (train.py:20)"})
    for step in range(40):
        run.next(at, at + MS, step).forward(at + MS, at + 2 * MS)
        run.backward(at + 2 * MS, at + 3 * MS).update(at + 3 * MS, at + 4 * MS)
        at += 4 * MS
        name, took = (8, 9 * MS) if step % 4 == 3 else (7, 3 * MS)
        run.span(Stage.OWN_CODE, at, at + took, extra=1, flags=Flag.GRAD)
        run.span(Stage.CALLED, at, at + took, source=name, cpu=took, flags=Flag.GRAD)
        at += 3 * MS
        for batch in range(5 if step % 4 == 3 else 0):
            run.next(at, at + MS, batch, loader=1).forward(at + MS, at + 2 * MS)
            at += 4 * MS
    rank = run_of_records(run, 0, at)

    code = own_code_of_run.of_steps(rank, step_summary(rank))

    assert len(rank.steps.boundaries.evaluation) == 10
    assert [one.name for one in code.functions] == ["log (train.py:9)"]


def test_a_function_of_the_input_holds_nothing_of_what_other_lines_call():
    """What get_batch() calls takes most of what was looked at, and is not in the lines beside it."""
    run = MadeUp()
    names = {7: "get_batch (train.py:9)", 8: "lines 1 to 2 (train.py)", 9: "draw (train.py:8)"}
    run.names.update(names)
    for at in range(0, 40 * MS, 4 * MS):
        run.span(Stage.OWN_CODE, at, at + 4 * MS, extra=1, flags=Flag.GRAD)
        for name, outer, whole in ((7, 3, 3), (8, 1, 1), (9, 0, 2)):
            run.span(
                Stage.CALLED, at, at + whole * MS, source=name, cpu=outer * MS, flags=Flag.GRAD
            )
    main = run.process()

    code = own_code_of_run._of(main.view(Stage.OWN_CODE), main, 0.01, ("get_batch (train.py:9)",))

    assert [(one.name, one.mainly) for one in code.functions] == [("lines 1 to 2 (train.py)", "")]


class Handler:
    """A library's handler that calls the next one, as those of Pyro do."""

    def __init__(self, wrapped):
        self.wrapped = wrapped

    def __call__(self, *args):
        return self.handles(*args)

    def handles(self, *args):
        return self.wrapped(*args)


def test_parts_of_a_stretch_sum_to_it_where_functions_call_themselves(recorded, monkeypatch):
    """Three handlers around a function that calls the model: each is counted once."""
    seen, clock, net = [], Clock(), model()
    add = stretches._StretchSums.add

    def added(sums, stretch, weight):
        seen.append((stretch.took, dict(stretch.outer()), dict(stretch.codes)))
        add(sums, stretch, weight)

    monkeypatch.setattr(stretches._StretchSums, "add", added)

    def guide(x):
        project(clock)
        return net(x).square().mean()

    handled = Handler(Handler(Handler(guide)))
    recorded(lambda: trained(lambda _, number: handled(torch.ones(8, 32)), 30, net))

    assert all(sum(parts.values()) <= 1.01 * took + 10_000 for took, parts, _ in seen)
    projected = [
        ns / took
        for took, parts, codes in seen
        for part, ns in parts.items()
        if isinstance(part, int) and codes[part] is project.__code__
    ]
    assert projected and max(projected) > 0.5
