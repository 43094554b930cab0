"""Examples that libraries of training have in their own repositories."""

from programs_of_others.data import bert, cora, glue, graphs, mnist, photos, planetoid
from programs_of_others.program import Program

FEW = "--trainer.max_epochs=2 --trainer.limit_train_batches=20 " + " ".join(
    f"--trainer.limit_{part}_batches=2" for part in ("val", "test", "predict")
)
TWENTY = "2 epochs of 20 batches of 16"
MRPC = (bert("bert-base-cased"), glue("nyu-mll/glue", "glue"))
DATASETS = (mnist("../../../Datasets"),)
WHOLE = (mnist("../../Datasets", 60000), mnist("data", 64))
GRAPH = "30 epochs over one graph"
ACCELERATE = ("accelerate", "transformers", "datasets", "evaluate")

IGNITE = [
    Program(
        "ignite mnist",
        "pytorch/ignite",
        "examples/mnist",
        "mnist.py --batch_size 16 --epochs 2",
        ((40, 640),),
        TWENTY,
        (mnist("."),),
        ("ignite",),
    ),
    Program(
        "ignite mnist_save_resume_engine",
        "pytorch/ignite",
        "examples/mnist",
        "mnist_save_resume_engine.py --batch_size 16 --epochs 2",
        ((40, 640),),
        TWENTY,
        (mnist("."),),
        ("ignite", "tensorboardX"),
    ),
]
LIGHTNING = [
    Program(
        "fabric image_classifier/train_torch",
        "Lightning-AI/pytorch-lightning",
        "examples/fabric/image_classifier",
        "train_torch.py --batch-size 16 --epochs 2",
        ((40, 640),),
        TWENTY,
        DATASETS,
        ("lightning",),
    ),
    Program(
        "fabric image_classifier/train_fabric",
        "Lightning-AI/pytorch-lightning",
        "examples/fabric/image_classifier",
        "train_fabric.py --batch-size 16 --epochs 2",
        ((40, 640),),
        TWENTY,
        DATASETS,
        ("lightning", "torchmetrics"),
    ),
    Program(
        "fabric kfold_cv",
        "Lightning-AI/pytorch-lightning",
        "examples/fabric/kfold_cv",
        "train_fabric.py --batch-size 16 --epochs 2 --folds 2",
        ((40, 640),),
        "2 epochs of 2 folds of 10 batches of 16, each with a model and an optimizer of its own",
        DATASETS,
        ("lightning", "torchmetrics", "sklearn"),
        updates=20,
    ),
    Program(
        "Lightning autoencoder",
        "Lightning-AI/pytorch-lightning",
        "examples/pytorch/basics",
        f"autoencoder.py {FEW}",
        ((40, 1280),),
        "2 epochs of 20 batches of 32",
        WHOLE,
        ("lightning", "jsonargparse"),
    ),
    Program(
        "Lightning backbone_image_classifier",
        "Lightning-AI/pytorch-lightning",
        "examples/pytorch/basics",
        f"backbone_image_classifier.py {FEW}",
        ((40, 1280),),
        "2 epochs of 20 batches of 32",
        WHOLE,
        ("lightning", "jsonargparse"),
    ),
]
HUGGING_FACE = [
    Program(
        "accelerate nlp_example",
        "huggingface/accelerate",
        "examples",
        "nlp_example.py --cpu",
        ((30, 480),),
        "3 epochs of 10 batches of 16",
        MRPC,
        ACCELERATE,
    ),
    Program(
        "accelerate gradient_accumulation",
        "huggingface/accelerate",
        "examples/by_feature",
        "gradient_accumulation.py --cpu --gradient_accumulation_steps 2",
        ((15, 480),),
        "3 epochs of 10 batches of 16, 2 per update",
        MRPC,
        ACCELERATE,
    ),
    Program(
        "accelerate checkpointing",
        "huggingface/accelerate",
        "examples/by_feature",
        "checkpointing.py --cpu --checkpointing_steps epoch --output_dir out",
        ((30, 480),),
        "3 epochs of 10 batches of 16",
        MRPC,
        ACCELERATE,
    ),
    Program(
        "accelerate local_sgd",
        "huggingface/accelerate",
        "examples/by_feature",
        "local_sgd.py --cpu",
        ((30, 480),),
        "3 epochs of 10 batches of 16",
        MRPC,
        ACCELERATE,
    ),
    Program(
        "timm train.py",
        "huggingface/pytorch-image-models",
        "",
        "train.py photos --model resnet10t --num-classes 2 --img-size 96 -b 8 -j 2 --epochs 4 "
        "--device cpu --warmup-epochs 0",
        ((20, 160),),
        "4 epochs of 5 batches of 8",
        (photos("photos/train", 20), photos("photos/validation", 4)),
        on_path=("",),
    ),
]
GRAPHS = [
    Program(
        "PyG gcn",
        "pyg-team/pytorch_geometric",
        "examples",
        "gcn.py --epochs 30",
        ((30, None),),
        GRAPH,
        (planetoid("../data/Planetoid"),),
        ("torch_geometric",),
        no_input=True,
    ),
    Program(
        "PyG gat",
        "pyg-team/pytorch_geometric",
        "examples",
        "gat.py --epochs 30",
        ((30, None),),
        GRAPH,
        (planetoid("../data/Planetoid"),),
        ("torch_geometric",),
        no_input=True,
    ),
    Program(
        "PyG autoencoder",
        "pyg-team/pytorch_geometric",
        "examples",
        "autoencoder.py --epochs 200",
        ((200, None),),
        "200 epochs over one graph",
        (planetoid("../data/Planetoid"),),
        ("torch_geometric", "sklearn"),
        no_input=True,
    ),
    Program(
        "PyG mutag_gin",
        "pyg-team/pytorch_geometric",
        "examples",
        "mutag_gin.py --epochs 5 --batch_size 32",
        ((30, 900),),
        "5 epochs of 6 batches of 180 graphs",
        (graphs("../data/TU"),),
        ("torch_geometric",),
    ),
    Program(
        "pygcn",
        "tkipf/pygcn",
        "",
        "train.py --epochs 30",
        ((30, None),),
        GRAPH,
        (cora("data/cora"),),
        ("scipy",),
        start="pygcn",
        on_path=("",),
        no_input=True,
        printed=r"^Epoch: \d+",
    ),
]
LIBRARIES = [*IGNITE, *LIGHTNING, *HUGGING_FACE, *GRAPHS]
