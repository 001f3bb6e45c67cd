#include "trainer/report/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/rows.h"

namespace zeroth::trainer::metrics_test {
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
  CHECK(
      keys ==
      "step loss grad_norm lr loss_scale skipped tokens trained_tokens tokens_per_s step_s "
      "since_start_s peak_rss_mib peak_gpu_mib peak_share data_s data_wait_s forward_s backward_s "
      "reduce_s "
      "update_s compute_s communication_s waiting_s overlap communication_bytes pipe_idle_s "
      "aux_loss expert_load_max experts_unused offload_read_bytes "
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

TEST_CASE("the load of experts is that of the layer with the most chosen one") {
  StepRow row = sample_row(1);
  CHECK(expert_load(row.stats).max == 0);
  row.stats.expert_tokens = {{4, 4, 4, 4}, {0, 12, 4, 0}};
  row.stats.aux_loss = 2.5;
  CHECK(expert_load(row.stats).max == 3);
  CHECK(expert_load(row.stats).unused == 2);
  const auto json = nlohmann::json::parse(to_json(row));
  CHECK(json["expert_load_max"] == 3);
  CHECK(json["experts_unused"] == 2);
  CHECK(json["aux_loss"] == 2.5);
}

TEST_CASE("a step's time is what its rank computed, moved and waited for") {
  StepRow row = sample_row(2);  // 0.485 s
  row.stats.comm = {
      .working_s = 0.05, .waiting_s = 0.035, .in_flight_s = 0.34, .bytes = 9, .collectives = 3};
  row.mfu = 0.25;
  const StepSplit split = split_step_time(row.stats);
  CHECK(split.compute_s == doctest::Approx(0.4));
  CHECK(split.communication_s == 0.05);
  CHECK(split.waiting_s == 0.035);
  CHECK(split.overlap == doctest::Approx(0.75));
  const auto json = nlohmann::json::parse(to_json(row));
  CHECK(json["overlap"].get<double>() == split.overlap);
  CHECK(json["peak_share"] == 0.25);
  row.stats.comm.in_flight_s = 0.01;  // clocks of several threads need not agree
  CHECK(split_step_time(row.stats).overlap == 0);
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
  const TempFolder directory;
  const auto path = directory / "metrics.jsonl";
  std::ofstream(path) << "old\n";
  MetricsFile file(path.string(), no_warning);
  CHECK(read(path) == "old\n");
  file.write("{}");
  CHECK(read(path) == "{}\n");
  file.write("[]");
  CHECK(read(path) == "{}\n[]\n");
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
                        "--metrics /dev/full: write failed: No space left on device; no more "
                        "lines are written, training continues"});
}

TEST_CASE("a metrics file beyond ulimit -f is a warning that names the limit") {
  const TempFolder directory;
  const std::string path = (directory / "m.jsonl").string();
  const ChildResult result = in_child([&path] {
    limit_file_size(10);
    std::string warning;
    MetricsFile file(path, [&](const std::string& text) { warning = text; });
    file.write(R"({"step": 1, "loss": 0.5})");
    const std::string expected =
        "--metrics " + path +
        ": write failed: File too large (ulimit -f: 10 bytes); no more lines are "
        "written, training continues";
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
    const double before = local_peak_memory(torch::kCPU).rss_mib;
    if (before <= 1) return 2;
    {
      const std::vector<char> touched(64 << 20, 1);
      if (touched.back() != 1) return 3;
    }
    const PeakMemory after = local_peak_memory(torch::kCPU);
    if (after.rss_mib < before + 32) return 4;
    return after.gpu_mib == 0 ? 0 : 5;
  });
  CHECK(child.status == 0);
}

TEST_CASE("in a world of one the largest rank is this one") {
  comm::DeviceMesh mesh(torch::kCPU, comm::make_solo_group());
  const double own = local_peak_memory(torch::kCPU).rss_mib;
  CHECK(max_peak_memory(mesh).rss_mib == doctest::Approx(own).epsilon(0.01));
}

TEST_CASE(
    "metrics that go on lose what a former try did beyond the checkpoint, and no other line") {
  const TempFolder directory;
  const auto goes_on = [&](const std::string& text, std::optional<double> loss) {
    const auto path = directory.write("m.jsonl", text);
    MetricsFile file(path.string(), no_warning);
    file.resume_from(2, loss);
    file.write("{}");
    return read(path);
  };
  const auto step = [](int64_t number, double loss) {
    StepRow row = sample_row(number);
    row.stats.loss = loss;
    return to_json(row) + "\n";
  };
  const auto evaluation = [](int64_t at) { return to_json(EvalRow{.step = at}) + "\n"; };
  const auto stop = [](int64_t at) { return to_json(StopRow{.step = at, .signal = "x"}) + "\n"; };
  const std::string to_2 = evaluation(0) + step(1, 3) + evaluation(1) + step(2, 0.1);
  CHECK(goes_on(to_2, 0.1) == to_2 + "{}\n");
  CHECK(goes_on(to_2 + step(3, 1) + evaluation(3) + stop(3), 0.1) == to_2 + "{}\n");
  CHECK(goes_on(to_2 + step(3, 1).substr(0, 40), 0.1) == to_2 + "{}\n");
  CHECK(goes_on(to_2 + step(3, 1) + step(4, 1).substr(0, 3), 0.1) == to_2 + "{}\n");
  CHECK(goes_on(to_2 + std::string(4096, '\0'), 0.1) == to_2 + "{}\n");
  const std::string after_2 = to_2 + evaluation(2) + stop(2) + to_json(ResumeRow{.step = 2}) + "\n";
  CHECK(goes_on(after_2 + step(3, 1), 0.1) == after_2 + "{}\n");
  CHECK(goes_on(to_2 + "a note\n" + step(3, 1), 0.1) == to_2 + "a note\n{}\n");
  CHECK(goes_on(to_2 + step(3, 1), std::nullopt) == to_2 + "{}\n");
  const std::string lost = step(1, 3) + step(2, NAN);
  CHECK(goes_on(lost + step(3, 1), NAN) == lost + "{}\n");
  std::string windows = to_2;
  for (size_t at = 0; (at = windows.find('\n', at)) != windows.npos; at += 2) {
    windows.insert(at, "\r");
  }
  CHECK(goes_on(windows + step(3, 1), 0.1) == windows + "{}\n");
}

TEST_CASE("metrics that go on take nothing from a file that is not this run's, and say so once") {
  const TempFolder directory;
  std::vector<std::string> warnings;
  const auto goes_on = [&](const std::string& text) {
    warnings.clear();
    const auto path = directory.write("m.jsonl", text);
    MetricsFile file(path.string(), [&](const std::string& said) { warnings.push_back(said); });
    file.resume_from(2, 0.1);
    file.write("{}");
    CHECK(warnings.size() == 1);
    return read(path);
  };
  const std::string named = "--metrics " + (directory / "m.jsonl").string() + ": ";
  const std::string stays = named +
                            "its step 2 is not that of this run, so it is not cut; lines are "
                            "appended from step 3";
  const std::string others = to_json(sample_row(2)) + "\n" + to_json(sample_row(3)) + "\n";
  CHECK(goes_on(others) == others + "{}\n");
  CHECK(warnings.back() == stays);
  CHECK(goes_on("a letter\nwithout an end") == "a letter\nwithout an end\n{}\n");
  CHECK(warnings.back() == stays);
  const std::string binary("\0\x7f\xff\n\r", 5);
  CHECK(goes_on(binary) == binary + "\n{}\n");
  CHECK(goes_on("") == "{}\n");
  CHECK(warnings.back() ==
        named + "the previous steps are missing; lines are appended from step 3");
  MetricsFile nowhere("/dev/null", no_warning);
  nowhere.resume_from(2, 0.1);
}

TEST_CASE("metrics whose output was taken over stay as they are") {
  const TempFolder directory;
  const std::string lines = to_json(sample_row(2)) + "\n" + to_json(sample_row(3)) + "\n";
  const auto path = directory.write("m.jsonl", lines);
  bool is_ours = false;
  MetricsFile file(path.string(), no_warning, [&] {
    if (!is_ours) throw OutputTakenOver("taken over");
  });
  CHECK_THROWS_AS(file.resume_from(2, sample_row(2).stats.loss), OutputTakenOver);
  CHECK_THROWS_AS(file.write("{}"), OutputTakenOver);
  CHECK(read(path) == lines);
  is_ours = true;
  file.resume_from(2, sample_row(2).stats.loss);
  file.write("{}");
  CHECK(read(path) == to_json(sample_row(2)) + "\n{}\n");
  const auto others = directory.write("n.jsonl", "a line of another's, without its end");
  {
    MetricsFile late(
        others.string(), [](const std::string&) {}, [] { throw OutputTakenOver(""); });
    late.resume_from(2, 0.1);
    CHECK_THROWS_AS(late.write("{}"), OutputTakenOver);
  }
  CHECK(read(others) == "a line of another's, without its end");
}

TEST_CASE("a step behind which a run went on has a line of its own") {
  CHECK(to_json(ResumeRow{.step = 7, .since_start_s = 1.5}) ==
        R"({"step":7,"resumed":true,"since_start_s":1.5})");
}

}  // namespace zeroth::trainer::metrics_test
