// Starts the real programs: what a run leaves for others to look at.
#include "trainer/report/reporter.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tests/trainer/disk.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::reporter_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 8 --micro-batch 2 --lr 1e-3 "
    "--steps 6 --deepspeed ds.json ";

nlohmann::json page_of(const Workbench& bench, const std::string& name) {
  const std::string text = bench.read(name);
  const std::string start = "<script type=\"application/json\" id=\"data\">";
  const size_t from = text.find(start) + start.size();
  return nlohmann::json::parse(text.substr(from, text.find("</script>", from) - from));
}

long lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("the page of a run holds its steps, evaluations, configuration and environment") {
  const Workbench bench;
  bench.write("ds.json", R"({"zero_optimization": {"stage": 2}})");
  const auto result =
      bench.zeroth(2, std::string(kTrain) +
                          "--eval-data train.bin --eval-every 3 --output out --metrics m.jsonl");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(fs::exists(bench / "out/model.safetensors"));
  const auto page = page_of(bench, "out/train_log.html");
  CHECK(page["state"] == "finished");
  CHECK(page["title"] == "out");
  CHECK(page["total_steps"] == 6);
  const auto rows = bench.steps("m.jsonl");
  REQUIRE(page["steps"]["loss"].size() == 6);
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(page["steps"]["loss"][i].get<double>() ==
          doctest::Approx(rows[i]["loss"].get<double>()).epsilon(1e-5));
    CHECK(page["steps"]["memory_mib"][i] > 10);
    CHECK(page["steps"]["forward_s"][i] > 0);
    CHECK(rows[i]["peak_share"].is_null() == (i == 0));
  }
  CHECK(page["evaluations"]["step"] == nlohmann::json{3, 6});
  const auto find = [&](const char* section, const std::string& key) {
    for (const auto& row : page[section]) {
      if (row[0] == key) return row;
    }
    return nlohmann::json();
  };
  CHECK(find("config", "zero_optimization.stage")[1] == "2");
  CHECK(find("config", "train_batch_size")[1] == "8");
  CHECK(find("environment", "LibTorch").size() == 2);
  CHECK(has(find("environment", "command")[1].get<std::string>(), "--output out"));
  CHECK(has(find("summary", "ranks")[1].get<std::string>(), "2 on cpu"));
}

TEST_CASE("a run with a pipeline shows a step on its page, and --trace-steps as a Chrome trace") {
  const Workbench bench;
  bench.write("ds.json", R"({"pipeline": {"stages": 2}})");
  const auto result = bench.zeroth(2, std::string(kTrain) + "--output out --trace-steps 4:5");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const auto timeline = page_of(bench, "out/train_log.html")["timeline"];
  CHECK(timeline["step"] == 5);
  REQUIRE(timeline["ranks"].size() == 2);
  CHECK(timeline["ranks"][1]["name"] == "rank 1, stage 1");
  // A fetch, a forward and a backward of each of 4 micro-batches, the reductions and the update.
  for (const auto& rank : timeline["ranks"]) CHECK(rank["events"].size() == 4 * 3 + 2);
  const auto trace = nlohmann::json::parse(bench.read("out/trace.json"))["traceEvents"];
  const auto count = [&](const char* category, int step) {
    return std::count_if(trace.begin(), trace.end(), [&](const nlohmann::json& event) {
      return event.value("cat", "") == category && event["args"]["step"] == step;
    });
  };
  for (const int step : {4, 5}) {
    CHECK(count("forward", step) == 8);
    CHECK(count("backward", step) == 8);
    CHECK(count("update", step) == 2);
  }
  CHECK(count("update", 3) == 0);
  CHECK(std::count_if(trace.begin(), trace.end(), [](const nlohmann::json& event) {
          return event.value("cat", "") == "wait";
        }) > 0);
}

TEST_CASE("a run that is killed leaves its page") {
  const Workbench bench;
  const auto result = bench.shell(
      "$FINETUNE --model model --data train.bin --seq-len 16 --steps 1000000 --output out "
      "> log 2>&1 &\n"
      "for i in $(seq 300); do grep -qs '\"step\":\\[1' out/train_log.html && break; sleep 0.1; "
      "done\n"
      "kill -9 $!; wait $!; echo code $?");
  CHECK_MESSAGE(has(result.out, "code 137"), bench.read("log"));
  const auto page = page_of(bench, "out/train_log.html");
  CHECK(page["state"] == "running");
  CHECK(page["steps"]["step"][0] == 1);
}

TEST_CASE("csv_monitor has a row per step, over samples, and tensorboard a file") {
  const Workbench bench;
  bench.write("ds.json", R"({"csv_monitor": {"enabled": true, "output_path": "logs"},
    "tensorboard": {"enabled": true, "output_path": "tb", "job_name": "mine"}})");
  const auto result = bench.zeroth(2, kTrain);
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(has(result.out, "csv_monitor in logs/DeepSpeedJobName"));
  const std::string rates = bench.read("logs/DeepSpeedJobName/Train_Samples_lr.csv");
  CHECK(rates ==
        "step,lr\r\n8,0.001\r\n16,0.001\r\n24,0.001\r\n32,0.001\r\n40,0.001\r\n"
        "48,0.001\r\n");
  CHECK(lines(bench.read("logs/DeepSpeedJobName/Train_Samples_train_loss.csv")) == 7);
  CHECK(std::distance(fs::directory_iterator(bench / "tb/mine"), fs::directory_iterator()) == 1);
}

TEST_CASE("a monitor that cannot write ends the run before it starts, and not when a disk fills") {
  const Workbench bench;
  bench.write("file", "");
  bench.write("ds.json", R"({"csv_monitor": {"enabled": true, "output_path": "file"}})");
  const auto refused = bench.zeroth(2, kTrain);
  CHECK(refused.code == 1);
  CHECK(has(refused.err,
            "csv_monitor.output_path \"file\": nothing can be written to "
            "file/DeepSpeedJobName: Not a directory"));
  CHECK_FALSE(has(refused.out, "step 1/6"));
  bench.write("ds.json",
              R"({"csv_monitor": {"enabled": true, "output_path": ".", "job_name": "csv"}})");
  fs::create_directory(bench / "csv");
  fs::create_symlink("/dev/full", bench / "csv/Train_Samples_lr.csv");
  const auto result = bench.zeroth(1, kTrain);
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const std::string warning = "Train_Samples_lr.csv: write failed: No space left on device";
  CHECK(has(result.out, warning));
  CHECK(result.out.find(warning) == result.out.rfind(warning));
  CHECK(has(result.out, "step 6/6"));
}

TEST_CASE("log_level, dump_state, breakdowns and the profile are what the file asks for") {
  const Workbench bench;
  bench.write("ds.json", R"({"dump_state": true, "wall_clock_breakdown": true,
    "memory_breakdown": true, "steps_per_print": 3,
    "flops_profiler": {"enabled": true, "output_file": "p/profile.txt"}})");
  const auto loud = bench.zeroth(2, kTrain);
  REQUIRE_MESSAGE(loud.code == 0, loud.out << loud.err);
  CHECK(has(loud.out, "\"train_batch_size\": 8"));
  CHECK(has(loud.out, " | data 0."));
  CHECK(has(loud.out, "memory after backward: host "));
  CHECK(has(loud.out, "step=3, skipped=0"));
  CHECK(has(loud.out, "% of peak"));
  CHECK(has(bench.read("p/profile.txt"), "flops profile of step 2, of one of 2 ranks"));
  CHECK(has(bench.read("p/profile.txt"), "layers.2"));
  bench.write("ds.json", R"({"log_level": "error", "flops_profiler": {"enabled": true}})");
  const auto quiet = bench.zeroth(1, kTrain);
  REQUIRE_MESSAGE(quiet.code == 0, quiet.out << quiet.err);
  CHECK(quiet.out.empty());
}

TEST_CASE("warnings stand last, below an empty line, and the run begins behind them") {
  const Workbench bench;
  bench.write("ds.json", R"({"log": 1, "optimizer": {"type": "AdamW", "params":
    {"max_grad_norm": 0.5}}, "flops_profiler": {"enabled": true, "profile_step": 100}})");
  const auto result = bench.finetune(std::string(kTrain) + "--report_to mlflow --logging_dir tb");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const size_t apart = result.out.find("\n\nwarning    ");
  REQUIRE_MESSAGE(apart != std::string::npos, result.out);
  CHECK(result.out.find("warning") == apart + 2);
  for (const char* title : {"model ", "data ", "loss ", "note ", "monitor "}) {
    CAPTURE(title);
    CHECK(has(result.out.substr(0, apart), fmt::format("\n{}", title)) ==
          (std::string(title) != "model "));
  }
  const std::string rest = result.out.substr(apart + 2, result.out.find("step 1/6") - apart - 2);
  for (const char* warning :
       {"the trained model will not be saved", "max_grad_norm 0.5 is used as", "log: ignored",
        "--report_to mlflow: no service", "profile_step 100"}) {
    CHECK_MESSAGE(has(rest, warning), warning);
  }
}

TEST_CASE("a disk that --metrics fills costs the run a warning and nothing else") {
  const Workbench bench;
  const MountedDisk disk(bench / "disk", "size=8k");
  if (!disk.mounted()) return;
  const auto result = bench.zeroth(
      2,
      "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 --steps 30 "
      "--metrics disk/m.jsonl --output out");
  CHECK_MESSAGE(result.code == 0, result.out << result.err);
  const std::string warning = "--metrics disk/m.jsonl: write failed: No space left on device";
  CHECK(has(result.out, warning + "; no more lines are written, training continues"));
  CHECK(result.out.find(warning) == result.out.rfind(warning));
  CHECK(has(result.out, "step 30/30"));
  CHECK(std::filesystem::exists(bench / "out/model.safetensors"));
}

}  // namespace zeroth::trainer::reporter_test
