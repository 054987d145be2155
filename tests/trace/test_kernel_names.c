/* SPDX-License-Identifier: Apache-2.0 */
/* Tests src/trace/kernel_names.c with names from traces and sources of many libraries. */
#include "test.h"

#include "trace/trace.h"

static const char *const communications[] = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "rcclGenericKernel",
    "void mscclpp::allreduceAllToAll<float>(float*)",
    "mscclKernel_Sum_float",
    "onecclAllReduce",
    "oneccl_allreduce_kernel_bf16",
    "HcclAllReduce",
    "hcom_allReduce__123_1",
    "void uccl::ep::internode::dispatch<true>(int4*)",
    "ucc_ec_cuda_reduce_kernel",
    "flagcxP2pKernel",
    "nvshmemi_transfer_rma_kernel",
    "void nvshmemx_barrier_all_on_stream_kernel()",
    "void rocshmem::barrier()",
    "ishmem_barrier_kernel",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(x)",
    "void deep_ep::internode::notify_dispatch<false, 2>(int const*)",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)",
    "void deep_ep::internode_ll::combine<false, 7168, 9, 9>(void*)",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*)",
    "void deep_ep::intranode::barrier<8>(int**, int)",
    "void internode::dispatch<false, 2>(x)",
    "DeepEP_dispatch_kernel",
    "deepep_combine",
    "void hybrid_ep::dispatch_kernel<x>(y)",
    "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(x)",
    "EpCombineInterNodeKernel",
    "pplx_kernels_all_to_all_dispatch",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)",
    "void vllm::cross_device_reduce_2stage<half, 4>(x)",
    "void sglang::cross_device_reduce_1stage<float, 2>",
    "void aiter::cross_device_reduce_2stage<x>",
    "void aiter::reduce_scatter_cross_device_store<x>",
    "void quickreduce::allreduce_prototype_twoshot<x>",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<x>",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<__nv_bfloat16, 8, true>(x)",
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<x>",
    "void tensorrt_llm::kernels::lamport_style_one_shot_all_reduce_norm_kernel<x>",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<x>",
    "void tensorrt_llm::kernels::moeAllToAllKernel",
    "userbuffers_fp16_sum_inplace_gpu_mc_rs_oop",
    "void transformer_engine::userbuffers_fp16_sum_inplace_gpu_mc",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<x>",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshot_allreduce_kernel<x>",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16>",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16>",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<x>",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>",
    "void c10d::symmetric_memory::barrier_kernel(unsigned int**)",
    "void put_signal_kernel(unsigned int**, unsigned long)",
    "allreduce_one_shot_push_intra_node_kernel",
    "all_reduce_two_shot_multimem_kernel",
    "all_gather_push_3d_kernel",
    "all_to_all_kernel",
    "kernel_dispatch_token",
    "kernel_combine_token",
    "gloo_cuda_allreduce_kernel",
};

/* Work, some of which sounds like communication. */
static const char *const work[] = {
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
    "void at::native::elementwise_kernel<128, 2, broadcast>(x)",
    "void at::native::vectorized_gather_kernel<16, long>(x)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(x)",
    "void at::native::indexing_backward_kernel<float>",
    "void at::native::index_elementwise_kernel<x>",
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_copy_3",
    "triton_red_fused_all_reduce__softmax_0",
    "triton_poi_fused_one_shot_all_reduce_add_1",
    "triton_per_fused_symm_mem_rms_norm_2",
    "void softmax_warp_all_reduce<float>",
    "void oneflow::cuda::layer_norm::BlockAllReduce<SumOp, float, 128>",
    "void moe_permute_kernel<x>",
    "void permute_with_mask_map_kernel",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 256, 8>(x)",
    "void moe_align_block_size_kernel<int>",
    "topk_gating_softmax",
    "void expandInputRowsKernel<x>",
    "void finalizeMoeRoutingKernel<x>",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>",
    "void cub::DeviceReduceKernel<x>",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_segment_k_off_kernel",
    "void splitKreduce_kernel<32, 16, int, float>",
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
    "volta_gemm",
    "render_occlusion_kernel",
    "void reduce_shmem_kernel<float>",
    "void cast_transpose_fused_kernel_notranspose",
    "gather_kernel",
    "scatter_add_kernel",
    "success_kernel",
    "descend_kernel",
    "matmul_kernel_persistent",
    "Memcpy DtoD (Device -> Device)",
    "Memcpy PtoP (Device -> Device)",
    "void std::enable_if<true, void>::type internal::gemvx::kernel",
    "ring_buffer_update",
    "group_norm_kernel",
    "nchwToNhwcKernel",
};

/* Nothing tells whether they communicate. */
static const char *const similar[] = {
    "void fused_broadcast_add<x>",
    "void moe_dispatch_local_kernel<x>",
    "moe_combine",
    "reduce_scatter_bins",
    "all_reduce_norm_kernel",
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static harpe_kernel_names *names_of(const char *const *patterns, size_t count) {
    harpe_kernel_names *names = NULL;
    harpe_error error;
    if (harpe_kernel_names_new(patterns, count, &names, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    return names;
}

/* Returns the note about one kernel. */
static void note_of(const char *name, bool communicates, harpe_text *text) {
    harpe_kernel_names *names = names_of(NULL, 0);
    for (int i = 0; i < 2; i++)
        if (harpe_kernel_names_communicate(names, name, 0.5) != communicates) fail_msg("%s", name);
    harpe_kernel_names_note_similar(names, text);
    harpe_kernel_names_free(names);
}

TEST(kernels_of_libraries_communicate) {
    harpe_text text = {0};
    for (size_t i = 0; i < COUNT(communications); i++)
        note_of(communications[i], true, &text);
    for (size_t i = 0; i < COUNT(work); i++)
        note_of(work[i], false, &text);
    assert_null(text.data);
    for (size_t i = 0; i < COUNT(similar); i++) {
        note_of(similar[i], false, &text);
        assert_non_null(strstr(text.data, similar[i]));
        assert_non_null(strstr(text.data, "(1 s); if they communicate"));
        harpe_text_free(&text);
        text = (harpe_text){0};
    }
}

TEST(note_lists_the_longest) {
    harpe_text text = {0};
    harpe_kernel_names *names = names_of(NULL, 0);
    const char *const kernels[] = {"peer_a", "peer_b", "peer_c", "peer_d", "peer_short", "gemm"};
    const double times_s[] = {0.2, 0.5, 0.3, 0.1, 0.01, 1};
    for (size_t i = 0; i < COUNT(kernels); i++)
        assert_false(harpe_kernel_names_communicate(names, kernels[i], times_s[i]));
    harpe_kernel_names_note_similar(names, &text);
    assert_string_equal(text.data, "these kernels look like communication, but count as work: "
                                   "'peer_b' (0.5 s), 'peer_c' (0.3 s), 'peer_a' (0.2 s) and 1 "
                                   "more; if they communicate, name them with --communication");
    harpe_text_free(&text);
    harpe_kernel_names_free(names);
}

TEST(patterns_name_more) {
    harpe_text text = {0};
    const char *const patterns[] = {"^moe_(dispatch|combine)$", "Memcpy PtoP", "never[0-9]+"};
    harpe_kernel_names *names = names_of(patterns, COUNT(patterns));
    assert_true(harpe_kernel_names_communicate(names, "moe_combine", 1));
    assert_true(harpe_kernel_names_communicate(names, "Memcpy PtoP (Device -> Device)", 1));
    assert_true(harpe_kernel_names_communicate(names, "ncclDevKernel_AllReduce", 1));
    assert_false(harpe_kernel_names_communicate(names, "my_moe_combine", 0));
    harpe_kernel_names_note_similar(names, &text);
    harpe_kernel_names_note_unmatched(names, &text);
    assert_string_equal(text.data, "--communication 'never[0-9]+': no kernel has such a name");
    harpe_text_free(&text);
    harpe_kernel_names_free(names);
    const char *const wrong[] = {"a", "(", "[z-a]", "a{2", ""};
    for (size_t i = 1; i < COUNT(wrong); i++) {
        harpe_error error;
        harpe_status status = harpe_kernel_names_new(wrong, i + 1, &names, &error);
        assert_int_equal(status, HARPE_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "is not a POSIX extended regular expression: "));
    }
}
