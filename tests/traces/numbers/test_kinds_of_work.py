"""What names say."""

import pytest

from feedline.analysis.traces.kinds_of_work import FLOAT32_PRODUCT, Copy, copy_of, is_communication, synchronises


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "void ncclDevKernel_Generic_4<2>(ncclDevKernelArgsStorage<4096ul>)",
        "void rcclGenericKernel<1, false>(ncclDevComm*)",
        "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, __half*, int, int)",
        "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 4>(sglang::RankData*)",
        "void deep_ep::internode::dispatch<false, 8, false, 16>(int4*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)",
        "nvshmemi_barrier_on_stream_kernel_threadgroup",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>(c10::BFloat16**)",
        "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)",
        "two_shot_all_reduce_kernel_inplace",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(AllReduceParams)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0>(int)",
        "userbuffers_fp16_sum_inplace_gpu_mc",
    ],
)
def test_kernels_of_communication_are_known_whoever_wrote_them(name):
    assert is_communication(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
        "void cunn_SoftMaxForward<BlockAllReduce>(float*)",
        "softmax_warp_allreduce_kernel",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "triton_poi_fused_all_reduce_wait_tensor_0",
        "void oneflow::LayerNormWarpImpl<WarpAllReduce>",
        "void block_all_reduce<float>(float*)",
        "(anonymous namespace)::scatter_kernel",
    ],
)
def test_reductions_within_a_device_are_no_communication(name):
    assert not is_communication(name)


@pytest.mark.parametrize(
    "name",
    [
        "cudaDeviceSynchronize",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cudaMemcpy",
        "hipDeviceSynchronize",
        "hipMemcpyWithStream",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuMemcpyDtoH_v2",
        "cudaStreamSynchronize_ptsz",
    ],
)
def test_calls_that_wait_for_the_device_are_known(name):
    assert synchronises(name)


@pytest.mark.parametrize(
    "name", ["cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventQuery", "cuMemcpyDtoHAsync_v2", "hipMemcpyAsync"]
)
def test_calls_that_return_at_once_are_not(name):
    assert not synchronises(name)


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("Memcpy HtoD (Pageable -> Device)", Copy("HtoD", "pageable")),
        ("Memcpy DtoH (Device -> Pinned)", Copy("DtoH", "pinned")),
        ("Memcpy DtoD (Device -> Device)", Copy("DtoD", "")),
        ("Memcpy PtoP (Device -> Device)", Copy("PtoP", "")),
        ("CopyHostToDevice", Copy("HtoD", "")),
        ("CopyDeviceToHost", Copy("DtoH", "")),
        ("copy", Copy("", "")),
    ],
)
def test_a_copys_name_says_which_way_it_goes_and_from_which_memory(name, wanted):
    assert copy_of(name) == wanted


@pytest.mark.parametrize(
    "name",
    [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm_256x128_8x4_nn_align1::Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "ampere_sgemm_128x64_tn",
        "volta_sgemm_32x128_nn",
    ],
)
def test_products_of_float32_that_use_no_tensor_cores_are_known(name):
    assert FLOAT32_PRODUCT.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>()",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel",
        "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int, float const*)",
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x64x8_stage3_warpsize2x1x1_g1_ffma",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80, true>)",
    ],
)
def test_those_with_tensor_cores_convolutions_and_attention_are_none(name):
    assert not FLOAT32_PRODUCT.search(name)
