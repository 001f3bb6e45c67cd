#include "trainer/report/monitoring.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/json/json.h"
#include "base/text/units.h"
#include "configs/resolve.h"
#include "trainer/report/config_text.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr double kMib = 1024.0 * 1024.0;

// Returns the text after "key ... : " in a file of /proc; empty if there is none.
std::string proc_field(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string machine_text() {
  utsname names{};
  ::uname(&names);
  std::string processor = proc_field("/proc/cpuinfo", "model name");
  if (processor.empty()) processor = names.machine;
  const int64_t kib = std::atoll(proc_field("/proc/meminfo", "MemTotal").c_str());
  return fmt::format("{}: {}, {} cores, {}, {} {}", names.nodename, processor,
                     std::thread::hardware_concurrency(), format_bytes(kib * 1024), names.sysname,
                     names.release);
}

std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// Returns the GPU models that the driver lists, including GPUs that this run does not use.
std::string gpus_text() {
  std::string text;
  std::error_code none;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    const std::string model = proc_field(gpu.path() / "information", "Model");
    text += (text.empty() ? "" : ", ") + model;
  }
  return text;
}

}  // namespace

std::string command_text(const std::vector<std::string>& arguments) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  std::string text;
  for (const std::string& argument : arguments) {
    if (!text.empty()) text += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == argument.npos) {
      text += argument;
      continue;
    }
    text += '\'';
    for (const char character : argument) {
      text += character == '\'' ? std::string("'\\''") : std::string(1, character);
    }
    text += '\'';
  }
  return text;
}

TitledLines environment_lines(const comm::DeviceMesh& mesh, int threads) {
  std::error_code gone;
  TitledLines lines = {{"Zeroth", ZEROTH_VERSION},
                       {"LibTorch", TORCH_VERSION},
                       {"machine", machine_text()},
                       {"ranks", ranks_text(mesh, threads)},
                       {"folder", fs::current_path(gone).string()},
                       {"command", command_text(process_arguments())}};
  if (mesh.device().is_cuda()) lines.insert(lines.begin() + 3, {"GPUs", gpus_text()});
  return lines;
}

monitor::PageFacts page_facts(const RunPlan& plan, const SummaryLines& summary,
                              TitledLines environment) {
  monitor::PageFacts facts{.title = file_name(fs::absolute(plan.flags.output).string()),
                           .total_steps = plan.samples.total_steps,
                           .summary = {},
                           .config = {},
                           .environment = std::move(environment),
                           .rounds = {}};
  for (const SummaryLine& line : summary) facts.summary.emplace_back(line.title, line.text);
  const RunConfig run = run_config(plan);
  for (FlatValue& value : flat_values(parse_trusted_json(configs::to_json(run.config)))) {
    const auto origin = run.origins.find(value.path);
    facts.config.push_back({.key = value.path,
                            .value = std::move(value.text),
                            .origin = origin == run.origins.end() ? "" : origin->second});
  }
  return facts;
}

nlohmann::ordered_json page_step(const StepRow& row, const device::MemoryUse& memory) {
  nlohmann::ordered_json values = step_values(row);
  values["memory_mib"] = static_cast<double>(memory.host) / kMib;
  values["gpu_mib"] = static_cast<double>(memory.device_peak) / kMib;
  return values;
}

std::vector<monitor::Event> step_events(const StepRow& row, const configs::Config& config,
                                        int64_t samples) {
  const engine::StepStats& stats = row.stats;
  std::vector<monitor::Event> events;
  const auto add = [&](const std::string& name, double value) {
    events.push_back({"Train/Samples/" + name, value, samples});
  };
  add("train_loss", stats.loss);
  add("lr", stats.next_lr);
  add("grad_norm", stats.grad_norm);
  if (config.scales_loss()) add("loss_scale", stats.loss_scale);
  if (config.wall_clock_breakdown || config.flops_profiler.enabled) {
    const engine::StepTimes& times = stats.times;
    add("elapsed_time_ms_forward", 1000 * times.forward);
    add("elapsed_time_ms_backward", 1000 * (times.backward + times.reduce));
    add("elapsed_time_ms_backward_inner", 1000 * times.backward);
    add("elapsed_time_ms_backward_allreduce", 1000 * times.reduce);
    add("elapsed_time_ms_step", 1000 * times.update);
  }
  return events;
}

std::vector<monitor::Event> eval_events(const EvalRow& row, int64_t samples) {
  return {{"Train/Samples/eval_loss", row.eval_loss, samples}};
}

std::vector<monitor::Event> trainer_events(const nlohmann::json& row) {
  constexpr std::string_view kEval = "eval_";
  std::vector<monitor::Event> events;
  if (row.is_null()) return events;
  const auto step = row.at("step").get<int64_t>();
  for (const auto& [key, value] : row.items()) {
    if (key == "step") continue;
    const bool of_eval = key.starts_with(kEval);
    const double number =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    events.push_back({of_eval ? "eval/" + key.substr(kEval.size()) : "train/" + key, number, step});
  }
  return events;
}

}  // namespace zeroth::trainer
