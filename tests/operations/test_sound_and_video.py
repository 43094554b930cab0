"""soundfile and decord: opening files, and what is decoded of them."""

import cv2
import numpy as np
import pytest

from feedline.profiler.events import Stage

FRAMES, HEIGHT, WIDTH = 12, 48, 64


def described(written):
    return [(span.stage, span.name, span.nbytes) for span in written]


@pytest.fixture
def sound(tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed here")
    path = tmp_path / "a.flac"
    soundfile.write(path, np.random.default_rng(0).uniform(-1, 1, (8000, 2)), 16000)
    return path


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "a.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (WIDTH, HEIGHT))
    for number in range(FRAMES):
        writer.write(np.full((HEIGHT, WIDTH, 3), number * 20, np.uint8))
    writer.release()
    return str(path)


def test_reading_sound_is_opening_and_decoding(spans, sound):
    import soundfile

    read = []
    written = spans(lambda: read.append(soundfile.read(sound, dtype="float32")))

    assert read[0][0].shape == (8000, 2) and read[0][1] == 16000
    assert described(written) == [
        (Stage.READ, "soundfile.SoundFile.open", 0),
        (Stage.DECODE, "soundfile.SoundFile.read", 8000 * 2 * 4),
    ]


def test_a_part_of_a_sound_is_what_it_takes(spans, sound):
    import soundfile

    with soundfile.SoundFile(sound) as file:
        written = spans(lambda: list(file.blocks(4000, dtype="int16")))

    assert described(written) == [(Stage.DECODE, "soundfile.SoundFile.read", 4000 * 2 * 2)] * 2


def test_soundfiles_errors_pass(spans, tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed here")

    def use():
        with pytest.raises(soundfile.LibsndfileError):
            soundfile.read(tmp_path / "none.wav")

    assert described(spans(use)) == [(Stage.READ, "soundfile.SoundFile.open", 0)]


def test_frames_of_decord_are_decoded(spans, video):
    decord = pytest.importorskip("decord", reason="decord is not installed here")
    frames = []

    def use():
        reader = decord.VideoReader(video, num_threads=1)
        frames.append(reader.get_batch([2, 5]).asnumpy())
        frames.append(reader[7].asnumpy())

    written = described(spans(use))

    assert [round(frame.mean() / 20) for frame in (*frames[0], frames[1])] == [2, 5, 7]
    assert written[0] == (Stage.READ, "decord.VideoReader.open", 0)
    size = HEIGHT * WIDTH * 3
    assert (Stage.DECODE, "decord.VideoReader.get_batch", 2 * size) in written
    assert (Stage.DECODE, "decord.VideoReader.next", size) in written
    assert {stage for stage, *_ in written[1:]} == {Stage.DECODE}
