"""Which kernels communicate, by names as public traces and sources have them."""

from pathlib import Path

import pytest

from feedline.analysis.traces.kernel_names import (
    _COMMUNICATION_LIBRARIES,
    may_communicate,
    operation_of,
)

DOCS = Path(__file__).resolve().parents[3] / "docs" / "traces.md"


@pytest.mark.parametrize(
    ("name", "does"),
    [
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
            "all_reduce",
        ),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        (
            "void ncclDevKernel_Generic_4<2>(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_Generic_4",
        ),
        ("void rcclGenericKernel<1, false>(ncclDevComm*)", "rcclGenericKernel"),
        (
            "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals, "
            "__half*, int, int)",
            "all_reduce",
        ),
        (
            "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 4>(sglang::RankData*)",
            "all_reduce",
        ),
        (
            "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, "
            "float*, bool const*)",
            "all_to_all",
        ),
        (
            "void dpsk::ep::internode::cached_notify<false>(int, int, int, int, int*, int)",
            "all_to_all",
        ),
        ("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)", "all_to_all"),
        (
            "void primus_turbo::deep_ep::intranode::cached_notify_combine<8>(void**, int*)",
            "all_to_all",
        ),
        ("void deep_ep::legacy::intranode::notify_dispatch<8>(int const*, int*)", "all_to_all"),
        ("void deep_ep::internode_ll::clean_low_latency_buffer<512>(long*, int)", "barrier"),
        ("void hybrid_ep::combine_kernel<4>(int)", "all_to_all"),
        ("EpDispatchInterNodeKernelV1_bf16", "all_to_all"),
        (
            "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8, false>(int const*)",
            "all_to_all",
        ),
        ("nvshmemi_barrier_on_stream_kernel_threadgroup", "barrier"),
        (
            "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, "
            "false>(c10::BFloat16**)",
            "all_reduce",
        ),
        ("void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)", "all_gather"),
        (
            "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16, 8u, "
            "true>(int)",
            "all_reduce",
        ),
        ("two_shot_all_reduce_kernel_inplace", "all_reduce"),
        (
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(AllReduceParams)",
            "all_reduce",
        ),
        (
            "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<(unsigned char)4, "
            "__nv_bfloat16>(int)",
            "all_reduce",
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0>(int)",
            "all_reduce",
        ),
        (
            "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>, "
            "__half>(__half const*)",
            "all_reduce",
        ),
        ("userbuffers_fp16_sum_inplace_gpu_mc", "all_reduce"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8", "reduce_scatter"),
        ("userbuffers_fp16_sum_inplace_gpu_rw_ag", "all_gather"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "send_recv"),
        ("oneccl_reduce_scatter_large_read", "reduce_scatter"),
    ],
)
def test_kernels_of_communication_are_known_with_what_they_do(name, does):
    assert operation_of(name) == does and not may_communicate(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
        "at::native::MeanOps<float>>>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
        "void cunn_SoftMaxForward<BlockAllReduce>(float*)",
        "softmax_warp_allreduce_kernel",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "triton_poi_fused_all_reduce_wait_tensor_0",
        "void oneflow::LayerNormWarpImpl<WarpAllReduce>",
        "void block_all_reduce<float>(float*)",
        "(anonymous namespace)::scatter_kernel",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, "
        "4, 5, true>(flash::Flash_fwd_params)",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, "
        "cute::C<128> >, 5, 256, 1> >(int)",
        "void at::native::(anonymous namespace)::indexing_backward_kernel<Dispatch>(int)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "moe_dispatch_permute_kernel",
    ],
)
def test_what_reduces_joins_or_sorts_within_a_device_is_computing(name):
    assert operation_of(name) is None and not may_communicate(name)


@pytest.mark.parametrize(
    "name",
    [
        "void combine<false, 8, __nv_bfloat16>(int4*)",
        "dispatch_ll",
        "moe_combine_fwd_kernel",
        "_a2a_unpack_kernel.kd",
        "rdmaPut",
    ],
)
def test_what_may_be_either_is_neither(name):
    assert operation_of(name) is None and may_communicate(name)


def test_the_docs_name_every_library_and_its_source():
    told = DOCS.read_text()
    for library in _COMMUNICATION_LIBRARIES[:-1]:
        assert (
            f"| {library.name} |" in told
            and f"[{library.source}](https://github.com/{library.source})" in told
        )
