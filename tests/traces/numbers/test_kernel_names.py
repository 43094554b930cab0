"""Kernels' names, shortened: those of public traces, and of compilers that others use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.analysis.traces.kernel_names import _function_of, fitting_name, short_name

NAMES = {
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*, bool "
    "const*, int4 const*)":
        "dpsk::ep::internode::combine",
    "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(dpsk::grouped_gemm::cuda::fp8_ptp128c::Params)":
        "cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>",
    # cut off
    "void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd<2, "
    "cute::tuple<cute::C<1>, cute::C<1>":
        "cutlass::device_kernel<flash::FlashAttnBwd>",
    "void at::native::vectorized_elementwise_kernel<4, "
    "at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3> >(int, x)":
        "vectorized_elementwise_kernel<CUDAFunctor_add>",
    "void at::native::elementwise_kernel<128, 4, "
    "at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#2}::operator()() const::{lambda()#12}::operator()() "
    "const::{lambda(float)#1}>(at::TensorIteratorBase&)>(int, x)":
        "elementwise_kernel<direct_copy_kernel_cuda>",
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, "
    "at::native::func_wrapper_t<c10::BFloat16, "
    "at::native::sum_functor<c10::BFloat16, float, "
    "c10::BFloat16>::operator()(at::TensorIterator&)::{lambda(float, float)#1}> > >(x)":
        "reduce_kernel<sum_functor>",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
    "at::detail::Array<char *, (int)1>>(int, T2)":
        "vectorized_elementwise_kernel<FillFunctor>",  # as Nsight Systems spells it
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)": "CatArrayBatchedCopy",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*, int)": "softmax_warp_forward",
    "std::enable_if<!(false), void>::type internal::gemvNSP_kernel<float, float, 1, 32, 4, "
    "1024>(cublasGemvParams<float>)":
        "internal::gemvNSP_kernel",
    "_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_17e44f7d43distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templ":
        "distribution_elementwise_grid_stride_kernel",
    "_ZN7ck_tile6kentryILi256ELi1ENS_13FmhaFwdKernelE.kd": "ck_tile::kentry",
    "ampere_sgemm_128x64_tn": "ampere_sgemm_128x64_tn",
    "triton_poi_fused_add_0 [clone .kd]": "triton_poi_fused_add_0",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)": "ncclDevKernel_SendRecv",
    "<barrier packet>": "<barrier packet>",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_cut_at_its_brackets_and_keeps_what_tells_it_apart(name):
    assert short_name(name) == NAMES[name]


@given(st.text("ab<>(){}[]:, _1", max_size=40))
def test_any_text_has_a_name_without_unbalanced_brackets(text):
    told = _function_of(text)
    assert told == text or not set("<>(){}[]") & set(told)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(x)",
            "cuda::fp8_ptp128c::GemmKernel",
        ),
        (
            "void deep_ep::legacy::intranode::cached_notify_combine<8>(void**)",
            "legacy::intranode::cached_notify_combine",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8",
            "sm80_xmma_gemm_f32f32_f32f…size128x128x8",
        ),
    ],
)
def test_a_name_that_is_too_long_loses_what_says_least(name, wanted):
    assert fitting_name(name, 40) == wanted and len(wanted) <= 40
