#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

constexpr KeyType kBool = KeyType::kBool;
constexpr KeyType kString = KeyType::kString;
constexpr std::string_view kDtypes =
    "\"fp32\" | \"fp16\" | \"bf16\" | \"float32\" | \"float16\" | \"bfloat16\"";

}  // namespace

std::vector<Key> gradient_rows() {
  return {
      refused("managed_gradient_accumulation", "true",
              "not supported yet: the engine counts the micro-batches"),
      honoured("prescale_gradients", kBool, "false", "",
               "an all-reduce divides by the number of ranks before the sum, not after; a "
               "reduce-scatter does "
               "so in any case"),
      honoured("gradient_predivide_factor", KeyType::kNumber, "1.0", "> 0",
               "without prescale_gradients: the part of that division that comes before the sum; "
               "other than 1 "
               "it holds for a reduce-scatter too"),
      {"gradient_allreduce_op",
       kString,
       KeyState::kHonoured,
       "\"mean\"",
       "\"mean\" | \"sum\"",
       "the default",
       "sum: every gradient is the number of ranks times the mean, at stage 3 too",
       {},
       true},
      {"communication_data_type",
       kString,
       KeyState::kHonoured,
       "null",
       "\"fp32\" | \"fp16\" | \"bf16\"",
       "the default",
       "precision in which gradients cross the wire; null: the working precision",
       {},
       true},
      refused("seq_parallel_communication_data_type", "\"fp32\"",
              "not supported yet: sequences are not split over ranks", "null"),
      refused("sparse_gradients", "false", "not supported, by DeepSpeed neither"),
      refused("disable_allgather", "false", "every rank needs the updated parameters"),
      section("data_types", "precision of single kinds of tensors"),
      honoured("data_types.grad_accum_dtype", kString, "null", kDtypes,
               "precision in which micro-batches accumulate: fp32 or the working precision; null: "
               "fp32 (DeepSpeed: the working precision)"),
      honoured("data_types.param_dtype", kString, "null", kDtypes,
               "has to equal the precision of the sections fp16 and bf16"),
      refused("data_types.buffer_dtype", "null",
              "rotary tables and other buffers are fp32: 16 bits cannot count positions",
              "\"fp32\" | \"float32\""),
      no_effect("data_types.keep_in_fp32_modules", KeyType::kList, "\"auto\"",
                "buffers are always fp32"),
      refused_section("torch_autocast", "enabled = false", "dtype lower_precision_safe_modules",
                      "not supported yet: use bf16 or fp16"),
      refused_section("amp", "enabled = false | \"auto\"", "opt_level *",
                      "not supported, by DeepSpeed neither"),
      no_effect("zero_allow_untested_optimizer", kBool, "false",
                "every supported optimizer works at every stage"),
      no_effect("zero_force_ds_cpu_optimizer", kBool, "true",
                "the update on the host is the same one for every optimizer"),
  };
}

}  // namespace zeroth::configs
