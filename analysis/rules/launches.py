"""What to do where a device waits for its host to launch work: of recorded runs and of traces."""

from feedline.analysis.predict.change import Refused

FIX = "Launch fewer and longer kernels: torch.compile, CUDA graphs, fused optimizers (fused=True), larger batches"
HOW_TO_CHECK = (
    "Compile the model with torch.compile(model, mode='reduce-overhead') and train a few hundred steps. If they take just as long although "
    "CUDA graphs were used (TORCH_LOGS=cudagraphs), and py-spy shows no Python outside the model that takes the time, this finding is "
    "wrong."
)


def change(facts: object) -> Refused:
    """Nothing is predicted: how many launches a compiler saves is unknown."""
    return Refused(
        "unknown_launches", "The number of launches that can be saved is unknown. Run a few hundred steps under torch.compile, and compare."
    )
