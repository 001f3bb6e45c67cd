#include "monitor/monitors.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/error.h"
#include "monitor/tensorboard.h"
#include "tests/monitor/events.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::monitor::monitors_test {
namespace {

namespace fs = std::filesystem;

configs::Config with_csv(const fs::path& output) {
  configs::Config config;
  config.csv_monitor = {.enabled = true, .output_path = output.string(), .job_name = "job"};
  return config;
}

Monitors::Warn collect(std::vector<std::string>& warnings) {
  return [&warnings](const std::string& text) { warnings.push_back(text); };
}

// The same points under DeepSpeed's names and under Trainer's.
Events both(const std::vector<Event>& deepspeed) {
  Events events{.deepspeed = deepspeed, .trainer = {}};
  for (const Event& event : deepspeed) {
    events.trainer.push_back({"train/loss", event.value, event.x / 8});
  }
  return events;
}

// The bytes of the only event file in a folder.
std::string event_bytes(const fs::path& directory) {
  std::string bytes;
  for (const auto& entry : fs::directory_iterator(directory)) bytes += read_text(entry.path());
  return bytes;
}

bool holds(const std::string& bytes, std::string_view tag) {
  return bytes.find(tag) != std::string::npos;
}

}  // namespace

TEST_CASE("event files of the section and of --report_to stand side by side, each with its names") {
  const TempFolder directory;
  configs::Config config;
  config.tensorboard = {
      .enabled = true, .output_path = directory.path().string(), .job_name = "ds"};
  std::vector<std::string> warnings;
  Monitors monitors(config, {.directory = directory / "hf", .origin = "--report_to tensorboard"},
                    collect(warnings));
  CHECK(monitors.lines().size() == 2);
  monitors.resume_from(1, 8);
  monitors.write(both({{"Train/Samples/lr", 0.5, 16}}));
  const std::string deepspeed = event_bytes(directory / "ds"),
                    trainer = event_bytes(directory / "hf");
  CHECK(holds(deepspeed, "Train/Samples/lr"));
  CHECK_FALSE(holds(deepspeed, "train/loss"));
  CHECK(holds(trainer, "train/loss"));
  CHECK_FALSE(holds(trainer, "Train/Samples"));
  // Each goes on behind its own point.
  const auto step_of_start = [](const std::string& bytes) {
    return bytes[version_record(0).size() + 12 + 9 + 1];
  };
  CHECK(step_of_start(deepspeed) == 9);
  CHECK(step_of_start(trainer) == 2);
  CHECK(warnings.empty());
  CHECK(message_of<Error>([&] {
          Monitors({}, {.directory = "/proc/x", .origin = "--report_to tensorboard"}, {});
        }).starts_with("--report_to tensorboard: nothing can be written to /proc/x: "));
}

TEST_CASE("those that are on write into output_path/job_name, which is made for them") {
  const TempFolder directory;
  configs::Config config = with_csv(directory.path() / "a/b");
  config.tensorboard = {
      .enabled = true, .output_path = directory.path().string(), .job_name = "tb"};
  std::vector<std::string> warnings;
  Monitors monitors(config, {}, collect(warnings));
  CHECK(monitors.lines() ==
        std::vector<std::string>{"csv_monitor in " + (directory.path() / "a/b/job").string(),
                                 "tensorboard in " + (directory.path() / "tb").string()});
  monitors.write(both(fixture_events()));
  CHECK(fs::exists(directory.path() / "a/b/job/Train_Samples_lr.csv"));
  CHECK_FALSE(fs::is_empty(directory.path() / "tb"));
  CHECK(warnings.empty());
}

TEST_CASE("off by default: no folder is made") {
  Monitors monitors(configs::Config{}, {}, {});
  CHECK_FALSE(monitors.any());
  monitors.write(both(fixture_events()));
  CHECK_FALSE(fs::exists("DeepSpeedJobName"));
}

TEST_CASE("a place where nothing can be written is an error with key and path") {
  const TempFolder directory;
  write_text(directory.path() / "file", "");
  configs::Config config = with_csv(directory.path() / "file");
  const std::string path = (directory.path() / "file").string();
  CHECK(message_of<Error>([&] { Monitors(config, {}, {}); }) ==
        "csv_monitor.output_path \"" + path + "\": nothing can be written to " + path +
            "/job: Not a directory");
  config.tensorboard = std::exchange(config.csv_monitor, {});
  config.tensorboard.output_path = "/proc";
  CHECK(message_of<Error>([&] {
          Monitors(config, {}, {});
        }).starts_with("tensorboard.output_path \"/proc\": nothing can be written to /proc/job: "));
}

TEST_CASE("a disk that is full is one warning, and the other monitors go on") {
  const TempFolder directory;
  configs::Config config = with_csv(directory.path());
  config.tensorboard = {
      .enabled = true, .output_path = directory.path().string(), .job_name = "tb"};
  std::vector<std::string> warnings;
  Monitors monitors(config, {}, collect(warnings));
  fs::create_symlink("/dev/full", directory.path() / "job/Train_Samples_lr.csv");
  for (int step = 1; step <= 3; ++step) monitors.write(both(fixture_events()));
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "csv_monitor: " + (directory.path() / "job/Train_Samples_lr.csv").string() +
                           ": write failed: No space left on device; it is disabled, training "
                           "continues");
  CHECK(monitors.lines().size() == 1);
}

TEST_CASE("a file beyond ulimit -f is a warning that names the limit") {
  const TempFolder directory;
  const ChildResult result = in_child([&directory] {
    std::vector<std::string> warnings;
    Monitors monitors(with_csv(directory.path()), {}, collect(warnings));
    limit_file_size(10);
    for (int step = 1; step <= 3; ++step) monitors.write(both(fixture_events()));
    const std::string expected =
        ".csv: write failed: File too large (ulimit -f: 10 bytes); it is disabled, training "
        "continues";
    return warnings.size() == 1 && warnings[0].ends_with(expected) ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a monitor that cannot go on says so and is off, and the others go on") {
  const TempFolder directory;
  configs::Config config = with_csv(directory.path());
  config.tensorboard = {
      .enabled = true, .output_path = directory.path().string(), .job_name = "tb"};
  std::vector<std::string> warnings;
  Monitors monitors(config, {}, collect(warnings));
  fs::remove_all(directory / "job");
  monitors.resume_from(2, 16);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "csv_monitor: " + (directory / "job").string() +
                           ": No such file or directory; it is disabled, training continues");
  CHECK(monitors.lines().size() == 1);
}

TEST_CASE("a run that goes on writes where it did, and what was made for the new one goes") {
  const TempFolder directory;
  const auto config_in = [&](const char* job) {
    configs::Config config;
    config.csv_monitor = {
        .enabled = true, .output_path = directory.path().string(), .job_name = job};
    config.tensorboard = config.csv_monitor;
    return config;
  };
  std::vector<std::string> warnings;
  Monitors(config_in("old"), {}, collect(warnings)).write(both(fixture_events()));
  Monitors monitors(config_in("new"), {}, collect(warnings));
  REQUIRE(fs::exists(directory / "new"));
  monitors.resume_in(directory / "old", directory / "new");
  CHECK_FALSE(fs::exists(directory / "new"));
  CHECK(monitors.lines()[1] == "tensorboard in " + (directory / "old").string());
  const auto events = [&] {
    return std::count_if(fs::directory_iterator(directory / "old"), fs::directory_iterator(),
                         [](const fs::directory_entry& entry) {
                           return entry.path().filename().string().starts_with(kEventFile);
                         });
  };
  CHECK(events() == 2);
  monitors.resume_in(directory / "elsewhere", directory / "no monitor's");
  monitors.write(both({{"Train/Samples/lr", 0.5, 4'000'000'000}}));
  CHECK(read_text(directory / "old/Train_Samples_lr.csv").ends_with("4000000000,0.5\r\n"));
  CHECK(warnings.empty());
}

TEST_CASE("begins_anew_doubles: only monitors that write where the try before did take it back") {
  const TempFolder directory;
  std::vector<std::string> warnings;
  const std::string csv = (directory / "job/Train_Samples_lr.csv").string();
  const std::vector<Event> rows = {{"Train/Samples/lr", 0.5, 4}};
  Monitors(with_csv(directory.path()), {}, collect(warnings)).write(both(rows));
  Monitors next(with_csv(directory.path()), {}, collect(warnings));
  CHECK(next.directories() == std::vector<std::string>{(directory / "job").string()});
  next.start_over({"elsewhere"}, 0);
  CHECK(read_text(csv) == "step,lr\r\n4,0.5\r\n");
  next.start_over(next.directories(), 0);
  CHECK(read_text(csv) == "step,lr\r\n");
  next.write(both(rows));
  CHECK(read_text(csv) == "step,lr\r\n4,0.5\r\n");
  CHECK(warnings.empty());
}

}  // namespace zeroth::monitor::monitors_test
