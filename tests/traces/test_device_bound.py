"""What is said of a device that works all the time: that it computes only if it does, and only
advice that its kernels call for.
"""

import json

import pytest
from traces.trainings_made import busy

from feedline.__main__ import main
from feedline.analysis.ledger.view.tensor_cores import TensorCores, tensor_cores

COMBINE = (
    "void deep_ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*, "
    "bool const*)"
)
DISPATCH = "void deep_ep::internode::dispatch<false, 8, false, 8>(int4*, float*, long*)"
FP8 = "void cutlass::device_kernel<deep_gemm::fp8_grouped::GemmKernel>(deep_gemm::fp8_grouped::GemmKernel::Params)"
SGEMM = "volta_sgemm_128x64_nn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int)"
)


def told(path, tmp_path):
    """The report: its verdict with what explains it, its finding about the device, and all of it."""
    assert (
        main(
            [
                "ingest",
                path,
                "-o",
                str(tmp_path / "run"),
                "-q",
                "--json",
                str(tmp_path / "out.json"),
            ]
        )
        == 0
    )
    report = json.loads((tmp_path / "out.json").read_text())
    return (
        "\n".join(
            [report["verdict"]["limit"], report["verdict"]["cause"], *report["findings"][0]["more"]]
        ),
        next((one for one in report["findings"] if one["cause"] == "device_bound"), None),
        report,
    )


def test_no_device_is_said_to_be_idle_where_the_trace_has_none(tmp_path):
    add = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "dur": 2000}
    events = [{**add, "ts": 10_000 + 10_000 * step} for step in range(4)]
    (tmp_path / "cpu.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    verdict, _, report = told(str(tmp_path / "cpu.json"), tmp_path)

    assert report["ranks"]["0"]["gpu"]["span_s"] is None
    assert "is unexplained: no operator ran" in verdict and "device was idle" not in verdict


def test_an_exchange_of_tokens_is_not_computing(tmp_path):
    path = busy(
        tmp_path / "moe.json",
        [(DISPATCH, 16, 0, 2000), (FP8, 7, 2000, 5000), (COMBINE, 16, 7000, 3000)],
    )
    verdict, device, report = told(path, tmp_path)

    assert (
        device is None
        and verdict.startswith("Bound by communication")
        and "all_to_all 5.00 ms" in verdict
    )
    assert report["ranks"]["0"]["gpu"]["compute_pct"] == pytest.approx(50)
    assert {row["name"]: row["communication"] for row in report["traces"]["kernels"]} == {
        FP8: False,
        COMBINE: True,
        DISPATCH: True,
    }


def test_behind_computing_it_is_named_beside_what_computes(tmp_path):
    verdict, device, _ = told(
        busy(tmp_path / "moe.json", [(FP8, 7, 0, 9500), (COMBINE, 16, 1000, 8000)]), tmp_path
    )

    assert "busy time is cutlass::device_kernel<deep_gemm::fp8_grouped::GemmKernel>" in verdict
    assert (
        "communication runs for 80 % of the step, 100 % of it while the device computes" in verdict
    )
    assert "autocast" not in device["fix"] and "set_float32_matmul_precision" not in device["fix"]


def test_what_may_be_communication_is_unknown(tmp_path):
    kernels = [("void combine<false, 8, __nv_bfloat16>(int4*)", 16, 0, 4000), (FP8, 7, 4000, 6000)]
    verdict, device, report = told(busy(tmp_path / "moe.json", kernels), tmp_path)

    assert verdict.startswith(
        "The device is busy for 100 % of the step, but how much of that is computing is unknown."
    )
    assert "40 % of its busy time is in kernels that may be communication" in verdict
    assert "computing for" not in verdict and "autocast" not in device["fix"]
    assert report["traces"]["budget_notes"] == [
        "compute includes kernels that may be communication by their names: combine"
    ]


@pytest.mark.parametrize(
    ("gpu", "advised", "not_advised"),
    [
        (
            "Tesla V100-SXM2-32GB",
            "torch.float16) with a GradScaler",
            ("set_float32_matmul", "bfloat16)"),
        ),
        ("NVIDIA A100-SXM4-80GB", "set_float32_matmul_precision('high')", ("V100", "GradScaler")),
        ("Made-up GPU", "On a V100 or T4, use torch.autocast('cuda', dtype=torch.float16)", ()),
        ("NVIDIA GeForce GTX 1080 Ti", "the Kernels table", ("tensor cores", "autocast")),
    ],
)
def test_float32_products_are_moved_to_what_the_gpu_has(gpu, advised, not_advised, tmp_path):
    _, device, _ = told(busy(tmp_path / "t.json", [(SGEMM, 7, 0, 10_000)], gpu), tmp_path)

    advice = " ".join([device["fix"], *device["fix_more"]])
    assert advised in advice and not any(word in advice for word in not_advised)


def test_a_compiler_is_advised_to_elementwise_kernels_only(tmp_path):
    _, device, _ = told(
        busy(tmp_path / "t.json", [(ADD, 7, 0, 9000), ("nchwToNhwcKernel", 7, 9000, 1000)]),
        tmp_path,
    )
    assert device["fix"] == (
        "Give the device less to do: torch.compile, which fuses elementwise kernels, "
        "channels_last for convolutions, whose inputs are "
        "converted now."
    )


@pytest.mark.parametrize(
    ("gpus", "takes"),
    [
        (["Tesla V100-SXM2-16GB"], TensorCores.FLOAT16),
        (["Tesla T4"], TensorCores.FLOAT16),
        (["NVIDIA TITAN V"], TensorCores.FLOAT16),
        (["NVIDIA GeForce RTX 2080 Ti"], TensorCores.FLOAT16),
        (["Quadro RTX 6000"], TensorCores.FLOAT16),
        (["NVIDIA GeForce RTX 2050"], TensorCores.TF32),
        (["Tesla P100-PCIE-16GB"], TensorCores.NONE),
        (["NVIDIA GeForce GTX 1660"], TensorCores.NONE),
        (["NVIDIA H100 80GB HBM3"], TensorCores.TF32),
        (["NVIDIA A100-PG509-200"], TensorCores.TF32),
        (["NVIDIA GeForce RTX 4090"], TensorCores.TF32),
        (["NVIDIA H200"] * 8, TensorCores.TF32),
        (["Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"], TensorCores.UNKNOWN),
        (["AMD Instinct MI300X"], TensorCores.UNKNOWN),
        ([], TensorCores.UNKNOWN),
    ],
)
def test_a_gpus_name_says_what_its_tensor_cores_take(gpus, takes):
    assert tensor_cores(gpus) is takes


@pytest.mark.parametrize(
    ("copy", "advised"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "Copy from pinned memory"),
        ("Memcpy HtoD (Pinned -> Device)", "Copy the next batch on a stream of its own"),
        ("Memcpy DtoH (Device -> Pageable)", "Copy results to the host less often"),
        ("Memcpy DtoD (Device -> Device)", "Avoid .clone()"),
        ("Memcpy PtoP (Device -> Device)", "Start the copies from one GPU to another earlier"),
    ],
)
def test_advice_on_copies_is_about_the_way_they_go(copy, advised, tmp_path):
    _, _, report = told(
        busy(tmp_path / "t.json", [(copy, 7, 0, 6000), (FP8, 7, 6000, 4000)]), tmp_path
    )

    assert next(
        one["fix"] for one in report["findings"] if one["cause"] == "exposed_copy"
    ).startswith(advised)
