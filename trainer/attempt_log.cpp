#include "trainer/attempt_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/replace_file.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr size_t kMaxAttempts = 1000;
constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max() / 4;
constexpr JsonLimits kLimits = {.bytes = size_t{4} << 20, .values = 20'000};

// The number of steps is last and has a fixed width, so that it can be overwritten in place.
constexpr int kStepDigits = 19;
constexpr std::string_view kEnd = "}\n";

Json row_to_json(const AttemptRow& row) {
  return {{"round", row.round}, {"hosts", row.hosts},
          {"ranks", row.ranks}, {"cause", row.cause},
          {"step", row.step},   {"lost", row.lost ? Json(*row.lost) : nullptr}};
}

AttemptRow parse_row(const JsonView& view) {
  AttemptRow row{.round = view.at("round").integer(0, kMaxCount),
                 .hosts = view.at("hosts").integer(1, kMaxCount),
                 .ranks = view.at("ranks").integer(1, kMaxCount),
                 .cause = printable(view.at("cause").text()),
                 .step = view.at("step").integer(0, kMaxCount)};
  if (const auto lost = view.find("lost")) row.lost = lost->integer(0, kMaxCount);
  return row;
}

AttemptRecord parse_record(const JsonView& view) {
  (void)view.at("version").integer(kVersion, kVersion);
  AttemptRecord record{.run = view.at("run").text(),
                       .batch = view.at("train_batch_size").integer(1, kMaxCount),
                       .micro_batch = view.at("micro_batch").integer(1, kMaxCount),
                       .run_name = view.at("run_name").text(),
                       .step = view.at("step").integer(0, kMaxCount)};
  const JsonView rounds = view.at("rounds");
  for (size_t i = 0; i < rounds.size(); ++i) record.rounds.push_back(parse_row(rounds.at(i)));
  return record;
}

}  // namespace

std::string AttemptRecord::text() const {
  Json rows = Json::array();
  for (size_t i = rounds.size() - std::min(rounds.size(), kMaxAttempts); i < rounds.size(); ++i) {
    rows.push_back(row_to_json(rounds[i]));
  }
  std::string all = to_line(Json{{"version", kVersion},
                                 {"run", run},
                                 {"train_batch_size", batch},
                                 {"micro_batch", micro_batch},
                                 {"run_name", run_name},
                                 {"rounds", std::move(rows)}});
  all.pop_back();  // remove the closing brace
  return fmt::format("{},\"step\":{:{}}{}", all, step, kStepDigits, kEnd);
}

std::optional<AttemptRecord> read_attempts(const fs::path& output) {
  const fs::path path = output / kAttemptFile;
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return std::nullopt;
  const nlohmann::json tree = read_json({.name = path.string(), .limits = kLimits});
  try {
    return parse_record(JsonView(tree));
  } catch (const Error& error) {
    throw Error("{}: {}", path.string(), error.what());
  }
}

AttemptFile::AttemptFile(const fs::path& output, const AttemptRecord& record,
                         const OutputGuard& guard) {
  if (guard) guard();
  Directory::create(output);
  const fs::path path = output / kAttemptFile;
  const std::string text = record.text();
  replace_file(path, text, guard);
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file_.get() < 0) throw Error("{}: {}", path.string(), system_reason(errno));
  step_offset_ = std::ssize(text) - std::ssize(kEnd) - kStepDigits;
}

void AttemptFile::step(int64_t step) {
  const std::string text = fmt::format("{:{}}", step, kStepDigits);
  [[maybe_unused]] const ssize_t ignored =
      ::pwrite(file_.get(), text.data(), text.size(), step_offset_);
}

std::string to_json(const AttemptRow& row) {
  return to_line(Json{{"step", row.step},
                      {"round", row.round},
                      {"hosts", row.hosts},
                      {"ranks", row.ranks},
                      {"cause", row.cause.empty() ? Json(nullptr) : Json(row.cause)},
                      {"steps_lost", row.lost ? Json(*row.lost) : Json(nullptr)}});
}

std::string describe(const AttemptRow& row) {
  std::string text = fmt::format("{} after step {} on {}, {}", row.round, row.step,
                                 pluralize(row.hosts, "host"), pluralize(row.ranks, "rank"));
  if (row.round > 0) {
    text +=
        row.lost ? fmt::format(", {} lost", pluralize(*row.lost, "step")) : ", lost steps unknown";
  }
  return row.cause.empty() ? text : fmt::format("{}: {}", text, row.cause);
}

AttemptLog::AttemptLog(const RunPlan& plan, bool writes, const std::string& run_name)
    : plan_(plan), enabled_(writes && plan.attempt.is_tracked && plan.trains()) {
  record_ = plan.previous_attempts.value_or(AttemptRecord{});
  previous_run_name_ = record_.run_name;
  record_.run = plan.attempt.run;
  record_.batch = plan.global_batch();
  record_.micro_batch = std::max(plan.train_partition(0).micro_batch,
                                 plan.previous_attempts ? plan.previous_attempts->micro_batch : 1);
  if (previous_run_name_.empty()) record_.run_name = run_name;
  if (!enabled_) record_.rounds.clear();
}

void AttemptLog::require_ownership() const {
  if (lock_ != nullptr) lock_->check();
}

void AttemptLog::begin(int64_t hosts, int64_t ranks) {
  if (!enabled_) return;
  record_.rounds.push_back({.round = plan_.attempt.index,
                            .hosts = std::max<int64_t>(1, hosts),
                            .ranks = ranks,
                            .cause = plan_.attempt.cause});
  resume_from(plan_.resume_plan ? plan_.resume_plan->step : 0);
}

void AttemptLog::resume_from(int64_t step) {
  if (!enabled_) return;
  AttemptRow& row = record_.rounds.back();
  row.step = step;
  row.lost.reset();
  if (plan_.previous_attempts)
    row.lost = std::max<int64_t>(0, plan_.previous_attempts->step - step);
  if (plan_.attempt.index == 0) row.lost = 0;
  record_.step = step;
  if (plan_.flags.output.empty()) return;
  file_.emplace(plan_.flags.output, record_, [this] { require_ownership(); });
}

void AttemptLog::step(int64_t step) {
  if (file_) file_->step(step);
}

std::vector<std::string> AttemptLog::lines() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < record_.rounds.size(); ++i) {
    const AttemptRow& row = record_.rounds[i];
    const bool last = i + 1 == record_.rounds.size();
    if (last || !plan_.resume_plan || row.step > record_.step) lines.push_back(to_json(row));
  }
  return lines;
}

}  // namespace zeroth::trainer
