from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting, without_workers

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.slow_stage import at_own_locks
from feedline.analysis.measure.model import Operation
from feedline.analysis.rules.input import blocked, thread_oversubscription
from feedline.analysis.rules.input.decode_bound import _OTHERS, _change, _check


def test_decode_that_takes_most_of_the_cpu_is_a_finding():
    finding = _check(waiting(60.0, sample={"decode": (8.4, 0.0, 0.0)}))

    assert (finding.rule_id, finding.severity) == ("decode_bound", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 8.4 / 11.2)
    assert "8.40 ms per sample, 75 % of a sample's CPU time" in finding.message


def test_decoders_of_images_are_named_only_where_pixels_were_decoded():
    decoding = {"decode": (8.4, 0.0, 0.0)}
    images, audio = (
        waiting(60.0, sample=decoding),
        waiting(60.0, sample=decoding, maker={"decoded_pixels": 0.0}),
    )

    assert _check(images).fix == "Decode with a faster library."
    assert _check(images).fix_more == [
        "Or decode on the GPU.",
        "Or decode only the crop.",
        "Or store smaller images.",
    ]
    assert _check(audio).fix == _OTHERS
    assert "whatif" in _change(images).message
    assert "whatif" not in _change(audio).message  # it measures decoders of images


def test_it_is_silent_just_below_half_of_the_cpu():
    assert _check(waiting(sample={"decode": (2.7, 0.0, 0.0)})) is None


def test_it_is_silent_where_samples_are_mostly_blocked_elsewhere():
    assert _check(waiting(sample={"decode": (4.0, 0.0, 0.0), "read": (0.3, 0.0, 12.0)})) is None


def test_without_workers_it_costs_its_own_time_in_the_step():
    finding = _check(without_workers(sample={"decode": (8.4, 0.0, 0.0)}))

    assert finding.cost_s == pytest.approx(32 * 8.4e-3)


def test_where_the_cpus_are_full_it_costs_its_share_of_cpu_time():
    queueing = {
        "decode": (8.4, 0.0, 0.0),
        "dataset": (0.5, 5.6, 0.0),
    }  # three quarters of the CPU time, half of the wall time

    finding = _check(waiting(60.0, sample=queueing, used_cpus=6.2))

    assert finding.cost_s == pytest.approx(
        (60e-3 + 0.4e-3) * 8.4 / 11.2
    )  # 0.4 ms of transport, too


def test_wall_time_serves_where_cpu_time_was_not_measured():
    facts = waiting(sample={"decode": (8.4, 0.0, 0.0)})
    unmeasured = {
        name: cost.__class__(cost.wall_s, None, None, None, None, None)
        for name, cost in facts.workers.per_sample.items()
    }

    assert _check(waiting(maker={"per_sample": unmeasured})).evidence[0].value == pytest.approx(
        0.75
    )


def test_a_healthy_training_is_not_decode_bound():
    assert _check(made_up_facts()) is None


READING_FRAMES = {"decode": (2.4, 0.0, 6.4)}
LOCKED = {"blocked_by": {"lock": 1.0}, "blocked_looks": 80}


def video(sample, **more):
    """A sample of a video: 12 frames are read for it.

    The decoder has threads of its own, which take 8 ms of CPU time.
    """
    maker = LOCKED | {
        "operations": [Operation("decode", "cv2.VideoCapture.read", 8.8e-3, 2.4e-3, 12.0)]
    }
    return waiting(60.0, sample=sample, maker=maker, process_cpu_s=13.2e-3, **more)


def test_a_video_is_decoded_by_threads_of_its_own_which_count():
    facts = video(READING_FRAMES)

    finding = _check(facts)

    assert "10.4 ms per sample, 79 % of a sample's CPU time" in finding.message
    assert {one.id: one.value for one in finding.evidence}["decoder_threads_s"] == pytest.approx(
        8e-3
    )
    assert blocked._check(facts) is None, "it waits at no lock of the program's"
    assert at_own_locks(facts) and not at_own_locks(
        video({"decode": (2.4, 0.0, 1.0), "dataset": (0.5, 0.0, 6.0)})
    )


def test_locks_outside_of_decoding_are_the_programs_own():
    facts = video({"decode": (2.4, 0.0, 1.0), "dataset": (0.5, 0.0, 6.0)})

    assert blocked._check(facts) and _check(facts) is None


def test_what_helps_with_videos_is_not_another_jpeg_decoder():
    facts = video(READING_FRAMES)

    assert "adjacent frames" in _check(facts).fix and "turbo" not in _check(facts).fix
    assert "--set decode" not in _change(facts).message


def test_frames_of_decord_are_videos_as_well():
    facts = waiting(
        60.0,
        sample={"decode": (9.0, 0.0, 0.0)},
        maker={"operations": [Operation("decode", "decord.VideoReader.next", 9e-3, 9e-3, 12.0)]},
    )

    assert "adjacent frames" in _check(facts).fix


def test_threads_of_a_video_decoder_are_set_where_it_is_opened():
    full = video({"decode": (2.4, 2.0, 3.0)}, effective_cpus=2.0, used_cpus=2.0)
    of_torch = replace(full, workers=replace(full.workers, blocked_by={}))

    assert "CAP_PROP_N_THREADS" in thread_oversubscription._check(full).fix
    assert "threadpool_limits" in thread_oversubscription._check(of_torch).fix


def test_where_a_quota_stops_the_training_it_costs_what_it_takes_of_the_quota():
    facts = waiting(used_cpus=0.5, effective_cpus=0.5, sample={"decode": (8.4, 0.0, 0.0)})
    assert facts.cpus is not None
    stopped = replace(facts, cpus=replace(facts.cpus, quota=0.5, affinity=2.0))
    free = replace(facts, cpus=replace(facts.cpus, quota=None, affinity=2.0))

    assert _check(stopped).cost_s == pytest.approx(
        min(facts.step.mean_s, 32 * 11.2e-3 / 0.5) * 8.4 / 11.2
    )
    assert _check(stopped).cost_s > _check(free).cost_s


def test_no_decoder_is_named_that_does_not_read_the_format():
    facts = waiting(
        60.0, sample={"decode": (8.4, 0.0, 0.0)}, operations={"decode/PIL.GIF.load": 8.0}
    )

    assert "whatif" not in _change(facts).message


@pytest.mark.parametrize(
    ("operation", "on_gpu", "decoder"),
    [
        ("PIL.JPEG.load", True, "turbo"),
        ("PIL.PNG.load", False, "cv2"),
        ("PIL.WEBP.load", False, "cv2"),
        ("cv2.imdecode.png", False, "pil"),
        ("torchvision.decode_png", False, "cv2"),
    ],
)
def test_only_what_gpus_and_decoders_take_is_advised(operation, on_gpu, decoder):
    facts = waiting(
        60.0,
        sample={"decode": (8.4, 0.0, 0.0)},
        operations={f"decode/{operation}": 8.0},
        stages={"copy": 1.0},
    )
    finding = _check(facts)

    assert facts.on_gpu
    assert ("on the GPU" in " ".join([finding.fix, *finding.fix_more])) == on_gpu
    assert f"decode={decoder} " in _change(facts).message
