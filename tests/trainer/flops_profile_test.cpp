#include "trainer/report/flops_profile.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "model/spec.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/rows.h"

namespace zeroth::trainer::flops_profile_test {
namespace {

struct Profiled {
  configs::Config config;
  model::ModelSpec spec;
  engine::StepStats stats = sample_row(2).stats;

  Profiled() {
    spec.vocab_size = 512;
    spec.hidden_size = 64;
    spec.intermediate_size = 128;
    spec.num_layers = 2;
    spec.num_heads = spec.num_kv_heads = 4;
    spec.head_dim = 16;
    stats.tokens = 256;
    stats.blocks = {{"embedding", 32768, 0.001, 0.002},
                    {"layers.0", 41000, 0.02, 0.04},
                    {"layers.1", 41000, 0.03, 0.05},
                    {"head", 32832, 0.1, 0.2}};
  }
  std::string text() const {
    return profile_text(stats, {.config = config,
                                .spec = spec,
                                .batch = {.micro_batch = 2, .micro_steps = 2},
                                .seq_len = 32,
                                .world_size = 2,
                                .num_parameters = 147'600});
  }
  bool has(const std::string& part) const { return text().find(part) != std::string::npos; }
};

}  // namespace

TEST_CASE("the profile tells operations, times and what was achieved of one rank's step") {
  Profiled run;
  const double forward = model::flops_per_token(run.spec, 32) / 3 * 128;  // tokens of this rank
  CHECK(run.has("flops profile of step 2, of one of 2 ranks: 2 x 2 samples of at most 32"));
  CHECK(run.has("parameters            148K"));
  CHECK(run.has(fmt::format("{:.3g} MFLOPs  in 200.00 ms: {:.3g} MFLOPS", forward / 1e6,
                            forward / 0.2 / 1e6)));
  CHECK(run.has(fmt::format("{:.3g} MFLOPs  in 250.00 ms: {:.3g} MFLOPS (2 x forward)",
                            2 * forward / 1e6, 2 * forward / 0.25 / 1e6)));
  CHECK(run.has(fmt::format("{:.3g} MFLOPs  in 485.00 ms", 3 * forward / 1e6)));
}

TEST_CASE("blocks are summed by type and listed one by one, the costliest first") {
  Profiled run;
  const std::string text = run.text();
  CHECK(run.has("  layers                2       82.0K"));
  CHECK(run.has("  layers.1              1       41.0K"));
  CHECK(text.find("  head ") < text.find("  layers "));
  CHECK(text.find("  layers.1 ") < text.find("  layers.0 "));
  CHECK(run.has("67.7%"));  // the head: 0.3 of 0.443 s
}

TEST_CASE("module_depth, detailed and top_modules choose what is listed") {
  Profiled run;
  run.config.flops_profiler.module_depth = 0;
  CHECK_FALSE(run.has("layers"));
  run.config.flops_profiler.module_depth = 1;
  CHECK(run.has("  layers "));
  CHECK_FALSE(run.has("layers.0"));
  run.config.flops_profiler.module_depth = -1;
  run.config.flops_profiler.detailed = false;
  run.config.flops_profiler.top_modules = 2;
  CHECK(run.has("layers.1"));
  CHECK_FALSE(run.has("layers.0"));
  CHECK(run.has("(2 more)"));
}

TEST_CASE("recomputed blocks count again in backward, or by the factor of the file") {
  Profiled run;
  run.config.recompute.every_nth_block = 1;  // all but the last block
  const auto flops = model::block_flops_per_token(run.spec, 32);
  const double all = flops[1] + flops[2] + flops[3];
  CHECK(run.has(fmt::format("({:.3g} x forward)", 2 + (flops[1] + flops[2]) / all)));
  const auto row_ends = [&](const std::string& block, double operations, double seconds) {
    const std::string text = run.text();
    const size_t at = text.find("  " + block + " ");
    REQUIRE(at != std::string::npos);
    const std::string row = text.substr(at, text.find('\n', at) - at);
    CHECK_MESSAGE(row.ends_with(fmt::format(" {:.3g} MFLOPS", operations * 128 / seconds / 1e6)),
                  row);
  };
  row_ends("layers.1", 4 * flops[2], 0.08);
  row_ends("head", 3 * flops[3], 0.3);  // is not run again
  run.config.flops_profiler.recompute_fwd_factor = 1;
  CHECK(run.has("(3 x forward)"));
  row_ends("head", 4 * flops[3], 0.3);
}

TEST_CASE("the profile's file is named when it cannot be written") {
  const TempFolder directory;
  const std::string path = (directory.path() / "new/profile.txt").string();
  write_profile(path, "");
  write_profile(path, "one\n");
  write_profile(path, "two\n");
  write_profile(path, "");
  CHECK(read_text(path) == "two\n");
  CHECK(message_of<Error>([&] { write_profile(path + "/below", "x"); }) ==
        "flops_profiler.output_file \"" + path + "/below\" cannot be written: Not a directory");
}

}  // namespace zeroth::trainer::flops_profile_test
