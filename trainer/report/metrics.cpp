#include "trainer/report/metrics.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"
#include "comm/cpu_collectives.h"
#include "device/memory_use.h"

namespace zeroth::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMib = 1024.0 * 1024.0;

// Returns the step of a line that one of the to_json() functions made.
std::optional<int64_t> step_of(std::string_view line) {
  constexpr std::string_view kBegin = R"({"step":)";
  if (!line.starts_with(kBegin)) return std::nullopt;
  line.remove_prefix(kBegin.size());
  const std::string_view step = next_field(line, ',');
  for (const std::string_view key :
       {R"("loss":)", R"("eval_loss":)", R"("interrupted":)", R"("resumed":)", R"("round":)"}) {
    if (line.starts_with(key)) return parse_number<int64_t>(step);
  }
  return std::nullopt;
}

// ResumeCut finds the offset after which a metrics file holds what a resumed run does again.
class ResumeCut {
 public:
  ResumeCut(int64_t step, std::optional<double> loss) : step_(step) {
    last_step_ = fmt::format(R"({{"step":{},"loss":)", step);
    if (loss) last_step_ += Json(*loss).dump() + ",";
  }

  void scan(const FileLine& line) {
    is_empty = false;
    needs_newline = !line.whole;
    if (line.whole && line.text.starts_with(last_step_)) {
      is_own = true;
      offset.reset();
    } else if (!offset && (!line.whole || step_of(line.text).value_or(0) > step_)) {
      offset = line.begin;
    }
  }

  // What is known after the last line.
  bool is_own = false;  // the file is the run's own
  bool is_empty = true;
  bool needs_newline = false;
  std::optional<int64_t> offset = std::nullopt;  // unset: nothing is cut

 private:
  int64_t step_;
  std::string last_step_;
};

double epoch_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the age of this process by field 22 of its stat file: clock ticks from boot to its start.
double process_age() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  ZEROTH_CHECK(name_end != std::string::npos, "/proc/self/stat holds '{}'", text);
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  ZEROTH_CHECK(fields >> start_ticks, "/proc/self/stat holds '{}'", text);
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const double since_boot = static_cast<double>(boot.tv_sec) + 1e-9 * boot.tv_nsec;
  return since_boot - start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

double RunTimer::start_time() const {
  return epoch_now() - seconds();
}

RunTimer::RunTimer(std::optional<double> launch_time)
    : before_s_(launch_time ? epoch_now() - *launch_time : process_age()) {}

StepSplit split_step_time(const engine::StepStats& stats) {
  const engine::StepTimes& times = stats.times;
  const comm::CommTimes& comm = stats.comm;
  const double all = times.data + times.forward + times.backward + times.reduce + times.update;
  StepSplit split{.compute_s = std::max(0.0, all - comm.working_s - comm.waiting_s),
                  .communication_s = comm.working_s,
                  .waiting_s = comm.waiting_s};
  if (comm.in_flight_s > 0) {
    const double beside = 1 - (comm.working_s + comm.waiting_s) / comm.in_flight_s;
    split.overlap = std::clamp(beside, 0.0, 1.0);
  }
  return split;
}

ExpertLoad expert_load(const engine::StepStats& stats) {
  ExpertLoad load;
  for (const std::vector<int64_t>& block : stats.expert_tokens) {
    const double mean =
        static_cast<double>(std::accumulate(block.begin(), block.end(), int64_t{0})) /
        static_cast<double>(block.size());
    load.max = std::max(load.max, static_cast<double>(std::ranges::max(block)) / mean);
    load.unused += std::ranges::count(block, 0);
  }
  return load;
}

Json step_values(const StepRow& row) {
  const engine::StepStats& stats = row.stats;
  const engine::StepTimes& times = stats.times;
  const StepSplit split = split_step_time(stats);
  const ExpertLoad load = expert_load(stats);
  const double rate = static_cast<double>(stats.tokens) / row.step_s;
  Json bytes = Json::object();
  for (const auto& [group, comm] : stats.comm_by_group) bytes[group] = comm.bytes;
  return {{"step", stats.step},
          {"loss", stats.loss},
          {"grad_norm", stats.grad_norm},
          {"lr", stats.lr},
          {"loss_scale", stats.loss_scale},
          {"skipped", stats.skipped},
          {"tokens", stats.tokens},
          {"trained_tokens", stats.num_label_tokens},
          {"tokens_per_s", rate},
          {"step_s", row.step_s},
          {"since_start_s", row.since_start_s},
          {"peak_rss_mib", row.peak.rss_mib},
          {"peak_gpu_mib", row.peak.gpu_mib},
          {"peak_share", row.mfu},
          {"data_s", times.data},
          {"data_wait_s", row.data_wait_s},
          {"forward_s", times.forward},
          {"backward_s", times.backward},
          {"reduce_s", times.reduce},
          {"update_s", times.update},
          {"compute_s", split.compute_s},
          {"communication_s", split.communication_s},
          {"waiting_s", split.waiting_s},
          {"overlap", split.overlap},
          {"communication_bytes", bytes},
          {"pipe_idle_s", stats.pipe_idle},
          {"aux_loss", stats.aux_loss},
          {"expert_load_max", load.max},
          {"experts_unused", load.unused},
          {"offload_read_bytes", stats.offload.traffic.bytes_read},
          {"offload_written_bytes", stats.offload.traffic.bytes_written},
          {"offload_reading_s", stats.offload.traffic.reading_s},
          {"offload_writing_s", stats.offload.traffic.writing_s},
          {"offload_under_way_s", stats.offload.traffic.in_flight_s},
          {"offload_waited_s", stats.offload.traffic.waited_s},
          {"offload_hidden", stats.offload.hidden()}};
}

// Here and below, the library writes numbers that are not finite as null.
std::string to_json(const StepRow& row) {
  return step_values(row).dump();
}

std::string to_json(const EvalRow& row) {
  return Json{{"step", row.step},
              {"eval_loss", row.eval_loss},
              {"eval_tokens", row.eval_tokens},
              {"since_start_s", row.since_start_s}}
      .dump();
}

std::string to_json(const StopRow& row) {
  return Json{{"step", row.step}, {"interrupted", row.signal}, {"since_start_s", row.since_start_s}}
      .dump();
}

std::string to_json(const ResumeRow& row) {
  return Json{{"step", row.step}, {"resumed", true}, {"since_start_s", row.since_start_s}}.dump();
}

MetricsFile::MetricsFile(const std::string& path, Warn warn, OutputGuard guard)
    : path_(path), warn_(std::move(warn)), guard_(std::move(guard)) {
  if (path_.empty()) return;
  errno = 0;
  file_.open(path_, std::ios::app);
  if (!file_) throw Error("--metrics {}: cannot be written: {}", path_, system_reason(errno));
}

void MetricsFile::write(const std::string& line) {
  if (path_.empty()) return;
  if (guard_) guard_();
  const std::string failure = try_write(line);
  if (failure.empty()) return;
  warn_(fmt::format("--metrics {}: {}; no more lines are written, training continues", path_,
                    failure));
  path_.clear();
}

std::string MetricsFile::try_write(const std::string& line) {
  std::error_code refused;
  if (!started_ && std::filesystem::is_regular_file(path_)) {
    std::filesystem::resize_file(path_, 0, refused);
  }
  if (refused) return system_reason(refused.value());
  started_ = true;
  errno = 0;
  file_ << (std::exchange(needs_newline_, false) ? "\n" : "") << line << '\n' << std::flush;
  return file_ ? "" : fmt::format("write failed: {}", system_reason(errno));
}

void MetricsFile::resume_from(int64_t step, std::optional<double> loss) {
  started_ = true;
  if (path_.empty() || !std::filesystem::is_regular_file(path_)) return;
  try {
    ResumeCut cut(step, loss);
    for_each_line(path_, [&](const FileLine& line) { cut.scan(line); });
    needs_newline_ = !cut.is_own && cut.needs_newline;
    if (!cut.is_own) {
      warn_(fmt::format(
          "--metrics {}: {}; lines are appended from step {}", path_,
          cut.is_empty ? "the previous steps are missing"
                       : fmt::format("its step {} is not that of this run, so it is not cut", step),
          step + 1));
      return;
    }
    if (guard_) guard_();
    if (cut.offset) truncate_file(path_, *cut.offset);
  } catch (const OutputTakenOver&) {
    throw;
  } catch (const Error& error) {
    warn_(fmt::format("--metrics {}: {}; new lines are appended to it", path_, error.what()));
  }
}

PeakMemory local_peak_memory(torch::Device device) {
  const device::MemoryUse use = device::memory_use(device);
  return {.rss_mib = static_cast<double>(use.host_peak) / kMib,
          .gpu_mib = static_cast<double>(use.device_peak) / kMib};
}

PeakMemory max_peak_memory(comm::DeviceMesh& mesh) {
  const PeakMemory own = local_peak_memory(mesh.device());
  std::array largest = {own.rss_mib, own.gpu_mib};
  comm::all_reduce_values(largest, comm::ReduceOp::kMax, "peak memory", mesh);
  return {.rss_mib = largest[0], .gpu_mib = largest[1]};
}

}  // namespace zeroth::trainer
