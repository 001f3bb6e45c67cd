#include "trainer/report/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/rows.h"

namespace zeroth::trainer {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void no_warning(const std::string& text) {
  FAIL_CHECK(text);
}

}  // namespace

TEST_CASE("a step's line holds exactly the documented keys in their order") {
  const auto json = nlohmann::ordered_json::parse(to_json(sample_row(3, 0.5, 12.25)));
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key + " ";
  CHECK(keys ==
        "step loss grad_norm lr loss_scale skipped tokens trained_tokens tokens_per_s step_s "
        "since_start_s peak_rss_mib peak_gpu_mib peak_share data_s forward_s backward_s reduce_s "
        "update_s compute_s communication_s waiting_s overlap offload_read_bytes "
        "offload_written_bytes offload_reading_s offload_writing_s offload_under_way_s "
        "offload_waited_s offload_hidden ");
  CHECK(json["step"] == 3);
  CHECK(json["loss"] == 2.5);
  CHECK(json["lr"] == 5e-5);
  CHECK(json["skipped"] == false);
  CHECK(json["tokens_per_s"] == 2000);
  CHECK(json["since_start_s"] == 12.25);
  CHECK(json["peak_rss_mib"] == 512.5);
  CHECK(json["peak_share"].is_null());
  CHECK(json["backward_s"] == 0.25);
  CHECK(json["overlap"].is_null());
  CHECK(json["offload_written_bytes"] == 0);
}

TEST_CASE("a step's time is what its rank computed, moved and waited for") {
  StepRow row = sample_row(2);  // 0.485 s
  row.stats.comm = {
      .working_s = 0.05, .waiting_s = 0.035, .under_way_s = 0.34, .bytes = 9, .collectives = 3};
  row.peak_share = 0.25;
  const StepSplit split = split_of(row.stats);
  CHECK(split.compute_s == doctest::Approx(0.4));
  CHECK(split.communication_s == 0.05);
  CHECK(split.waiting_s == 0.035);
  CHECK(split.overlap == doctest::Approx(0.75));
  const auto json = nlohmann::json::parse(to_json(row));
  CHECK(json["overlap"].get<double>() == split.overlap);
  CHECK(json["peak_share"] == 0.25);
  row.stats.comm.under_way_s = 0.01;  // clocks of several threads need not agree
  CHECK(split_of(row.stats).overlap == 0);
}

TEST_CASE("losses survive the way through JSON to the last bit") {
  StepRow row = sample_row(1);
  row.stats.loss = 6.2594989776611328;
  CHECK(nlohmann::json::parse(to_json(row))["loss"].get<double>() == row.stats.loss);
}

TEST_CASE("numbers that are not finite become null") {
  StepRow row = sample_row(1);
  row.stats.loss = NAN;
  row.stats.grad_norm = INFINITY;
  row.stats.skipped = true;
  const auto json = nlohmann::json::parse(to_json(row));
  CHECK(json["loss"].is_null());
  CHECK(json["grad_norm"].is_null());
  CHECK(json["skipped"] == true);
}

TEST_CASE("an evaluation's line never carries a loss") {
  const auto json = nlohmann::json::parse(
      to_json(EvalRow{.step = 20, .eval_loss = 3.5, .eval_tokens = 99, .since_start_s = 4}));
  CHECK(json["eval_loss"] == 3.5);
  CHECK(json["eval_tokens"] == 99);
  CHECK(json["step"] == 20);
  CHECK_FALSE(json.contains("loss"));
}

TEST_CASE("the metrics file keeps its old lines until the first one and is whole after each") {
  const auto path = std::filesystem::temp_directory_path() / "zeroth_metrics_test.jsonl";
  std::ofstream(path) << "old\n";
  MetricsFile file(path.string(), no_warning);
  CHECK(read(path) == "old\n");
  file.write("{}");
  CHECK(read(path) == "{}\n");
  file.write("[]");
  CHECK(read(path) == "{}\n[]\n");
  std::filesystem::remove(path);
}

TEST_CASE("a metrics file that cannot be written is an error that names it") {
  CHECK_THROWS_WITH_AS(MetricsFile("/no/such/folder/m.jsonl", no_warning),
                       "--metrics /no/such/folder/m.jsonl: cannot be written: No such file or "
                       "directory",
                       Error);
}

TEST_CASE("a metrics file whose disk is full says so once and writes no more") {
  std::vector<std::string> warnings;
  MetricsFile full("/dev/full", [&](const std::string& text) { warnings.push_back(text); });
  for (int line = 0; line < 3; ++line) full.write("{}");
  CHECK(warnings == std::vector<std::string>{
                        "--metrics /dev/full: write failed: No space left on device; it ends here, "
                        "training goes on"});
}

TEST_CASE("a metrics file beyond ulimit -f is a warning that names the limit") {
  const TempFolder folder;
  const std::string path = (folder / "m.jsonl").string();
  const ChildResult result = in_child([&path] {
    limit_file_size(10);
    std::string warning;
    MetricsFile file(path, [&](const std::string& text) { warning = text; });
    file.write(R"({"step": 1, "loss": 0.5})");
    const std::string expected =
        "--metrics " + path +
        ": write failed: File too large (ulimit -f: 10 bytes); it ends here, "
        "training goes on";
    return warning == expected ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("without a path nothing is written") {
  MetricsFile none("", no_warning);
  CHECK_NOTHROW(none.write("{}"));
}

TEST_CASE("the peak grows with touched memory and never falls") {
  // Its own: that of this process may stem from a larger test.
  const ChildResult child = in_child([] {
    const double before = own_peak_memory(torch::kCPU).rss_mib;
    if (before <= 1) return 2;
    {
      const std::vector<char> touched(64 << 20, 1);
      if (touched.back() != 1) return 3;
    }
    const PeakMemory after = own_peak_memory(torch::kCPU);
    if (after.rss_mib < before + 32) return 4;
    return after.gpu_mib == 0 ? 0 : 5;
  });
  CHECK(child.status == 0);
}

TEST_CASE("in a world of one the largest rank is this one") {
  comm::Mesh mesh(torch::kCPU, comm::make_solo_group());
  const double own = own_peak_memory(torch::kCPU).rss_mib;
  CHECK(largest_peak_memory(mesh).rss_mib == doctest::Approx(own).epsilon(0.01));
}

}  // namespace zeroth::trainer
