"""A fifth set of programs, of kinds that the others lack.

Written down before feedline ran on any of them, and read once before anything was changed.
"""

from programs import CODE, Case

FIFTH = [
    Case(
        "shelves",
        "ultralytics/ultralytics/pull/26150",
        "costs are computed between guesses and boxes of different images, and dropped",
        (*CODE, "call_in_model"),
        "together = | part[image] | .split([len | linear_sum_assignment(cost)",
        "loss",
    ),
    Case(
        "posteriors",
        "bayesflow-org/bayesflow/pull/108",
        "a bar is drawn in each step",
        CODE,
        "bar.set_postfix(",
        "refresh",
    ),
    Case(
        "letters",
        "ibab/tensorflow-wavenet/issues/116",
        "histograms of all weights are written in each step",
        CODE,
        "summary.spread( | torch.histogram( | self.file.write(",
        "every",
    ),
    Case(
        "patches",
        "neuro-ml/deep_pipe/pull/57",
        "np.random.choice adds up all chances for each draw",
        CODE,
        "np.random.choice(",
        "searchsorted",
    ),
    Case(
        "rotations",
        "sgl-project/sglang/pull/19842",
        "the table of places, which never changes, is computed again in each layer",
        ("call_in_model", "loop_in_model"),
        "turns() | rates = | angles = | return angles",
        "once",
    ),
    Case(
        "embodied",
        "NeuracoreAI/neuracore/pull/889",
        "what is the same for all samples is computed again for each",
        CODE,
        "self.described() | names = sorted | places = { | in sorted(joints | for robot, joints",
        "keep",
    ),
    Case(
        "flights",
        "allenai/allennlp/pull/1838",
        "a database is opened, and its names are read, for each sample",
        CODE,
        "sqlite3.connect( | for name, number in rows | database.execute( | Context(self.path)"
        " | self.names.update",
        "once",
    ),
    Case(
        "grasps",
        "BerkeleyAutomation/gqcnn/pull/45",
        "a thread makes the batches, and takes turns with the training",
        ("threads_take_turns", "input_thread", *CODE),
        "= batches.get() | random.gauss( | center = | grasp() for | threading.Thread(",
        "process",
    ),
    Case(
        "rare",
        "pytorch/pytorch/issues/32221",
        "drawing without replacement sorts the weights of all samples in each epoch",
        ("slow_sampler", "epoch_start"),
        "",
        "replacement",
    ),
    Case(
        "satellites",
        "allenai/rslearn_projects/pull/17",
        "workers are started by spawn in each epoch, and import everything again",
        ("worker_restarts", "epoch_start", "persistent_workers"),
        "",
        "persistent",
    ),
    Case(
        "definitions",
        "fastai/fastai/pull/2516",
        "all words are compared with all words, to count a few",
        CODE,
        "guessed & true | confusion.update( | guessed = | true = ",
        "index",
    ),
    Case(
        "chats",
        "ml-explore/mlx-lm/pull/1029",
        "lengths that batches are sorted by are those of dicts, so all are the same",
        ("padding", "padded_batches", "unused_padding"),
        "pad_sequence( | key=chats.length | len(self.rows[index]) | Alike(",
        "length",
    ),
]
