#include "tests/configs/support.h"

namespace zeroth::configs {
namespace {

constexpr char kAutoSizes[] = R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "allgather_bucket_size": "auto", "overlap_comm": "auto"}})";

}  // namespace

TEST_CASE("auto sizes come from the model's hidden size") {
  const ZeroConfig zero = config_of(kAutoSizes).zero;
  CHECK(zero.stage == 3);
  CHECK(zero.reduce_bucket_elements == 64 * 64);
  CHECK(zero.prefetch_bucket_elements == 3686);
  CHECK(zero.param_persistence_threshold_elements == 640);
  CHECK(zero.allgather_bucket_elements == 500'000'000);
  CHECK(zero.overlap_comm);
}

TEST_CASE("auto sizes without a hidden size are errors, one for each key") {
  const std::string error =
      error_of(kAutoSizes, {}, {.world_size = 2, .hidden_size = 0, .total_steps = 1});
  CHECK(error.find("3 errors") != std::string::npos);
  CHECK(error.find("zero_optimization.reduce_bucket_size: \"auto\" needs the model's hidden "
                   "size: give a number") != std::string::npos);
}

TEST_CASE("below stage 3, automatic sizes of stage 3 are the defaults, and need no hidden size") {
  const char* text = R"({"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": "auto",
                         "stage3_param_persistence_threshold": "auto"}})";
  const Resolved resolved = resolve_text(text, {}, {.world_size = 1, .total_steps = 1});
  const ZeroConfig& zero = resolved.config.zero;
  CHECK(resolved.origins.at("zero_optimization.stage3_prefetch_bucket_size") ==
        "auto: the default");
  CHECK(zero.prefetch_bucket_elements == 50'000'000);
  CHECK(zero.param_persistence_threshold_elements == 100'000);
}

TEST_CASE("the other keys of the section are read") {
  const ZeroConfig zero = config_of(R"({"zero_optimization": {"stage": 2,
      "reduce_scatter": false, "ignore_unused_parameters": false, "sub_group_size": 1e6}})")
                              .zero;
  CHECK_FALSE(zero.reduce_scatter);
  CHECK_FALSE(zero.ignore_unused_parameters);
  CHECK(zero.sub_group_size_elements == 1'000'000);
}

TEST_CASE("the zeros of common stage 3 files mean nothing ahead and tiles as by default") {
  const ZeroConfig zero = config_of(R"({"zero_optimization": {"stage": 3, "sub_group_size": 0,
      "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}})")
                              .zero;
  CHECK(zero.sub_group_size_elements == 1'000'000'000);
  CHECK(zero.max_live_elements == 0);
}

TEST_CASE("overlap is on at every stage unless it is switched off") {
  for (int stage = 0; stage < 4; ++stage) {
    CHECK(config_of(nested("zero_optimization.stage", std::to_string(stage))).zero.overlap_comm);
  }
  CHECK_FALSE(config_of(nested("zero_optimization.overlap_comm", "false")).zero.overlap_comm);
}

TEST_CASE("the old boolean form is stage one or zero, and said") {
  const Resolved on = resolve_text(R"({"zero_optimization": true})");
  CHECK(on.config.zero.stage == 1);
  CHECK(has_warning(on, "zero_optimization: true is the old form of {\"stage\": 1}"));
  CHECK(config_of(R"({"zero_optimization": false})").zero.stage == 0);
}

TEST_CASE("recompute comes from the file or from the flag") {
  CHECK(config_of("{}").recompute.every_nth_block == 0);
  FlagValues flags;
  flags.gradient_checkpointing = 2;
  CHECK(config_of("{}", flags).recompute.every_nth_block == 2);
  const RecomputeConfig file =
      config_of(R"({"activation_checkpointing": {"number_checkpoints": 4}})").recompute;
  CHECK(file.number_checkpoints == 4);
  CHECK(file.every_nth_block == 0);
}

}  // namespace zeroth::configs
