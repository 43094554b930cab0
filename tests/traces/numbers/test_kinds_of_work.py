"""What names say."""

import pytest

from feedline.analysis.traces.kernel_names import FLOAT32_PRODUCT, Copy, _synchronises
from feedline.analysis.traces.rank_trace import _copy_of


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
    assert _synchronises(name)


@pytest.mark.parametrize(
    "name",
    [
        "cudaMemcpyAsync",
        "cudaLaunchKernel",
        "cudaStreamWaitEvent",
        "cudaEventQuery",
        "cuMemcpyDtoHAsync_v2",
        "hipMemcpyAsync",
    ],
)
def test_calls_that_return_at_once_are_not(name):
    assert not _synchronises(name)


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("Memcpy HtoD (Pageable -> Device)", Copy("HtoD", "pageable")),
        ("Memcpy DtoH (Device -> Pinned)", Copy("DtoH", "pinned")),
        ("Memcpy DtoD (Device -> Device)", Copy("DtoD", "")),
        ("Memcpy PtoP (Device -> Device)", Copy("PtoP", "")),
        ("CopyHostToDevice", Copy("HtoD", "")),
        ("MemcpyD2H", Copy("DtoH", "")),
        ("CopyDeviceToHost", Copy("DtoH", "")),
        ("copy", Copy("", "")),
    ],
)
def test_a_copys_name_says_which_way_it_goes_and_from_which_memory(name, wanted):
    assert _copy_of(name) == wanted


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
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, "
        "true>(int, int, int, float const*)",
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x64x8_stage3_warpsize2x1x1_g1_ffma",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, "
        "cutlass::arch::Sm80, true>)",
    ],
)
def test_those_with_tensor_cores_convolutions_and_attention_are_none(name):
    assert not FLOAT32_PRODUCT.search(name)
