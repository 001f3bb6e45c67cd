#include "trainer/report/attempt_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text/units.h"

namespace zeroth::trainer {

std::string to_json(const AttemptRow& row) {
  using Json = nlohmann::ordered_json;
  return Json{{"step", row.step},
              {"round", row.round},
              {"hosts", row.hosts},
              {"ranks", row.ranks},
              {"cause", row.cause.empty() ? Json(nullptr) : Json(row.cause)},
              {"steps_lost", row.lost ? Json(*row.lost) : Json(nullptr)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
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
  record_.batch = plan.config.batch.train_batch_size;
  record_.micro_batch = std::max(plan.config.batch.micro_batch_size,
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
  write();
}

void AttemptLog::write() {
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

std::vector<monitor::PageFacts::RestartAttempt> AttemptLog::rows() const {
  std::vector<monitor::PageFacts::RestartAttempt> rows;
  for (const AttemptRow& row : record_.rounds) {
    rows.push_back({.round = row.round,
                    .hosts = row.hosts,
                    .ranks = row.ranks,
                    .cause = row.cause,
                    .step = row.step,
                    .lost = row.lost});
  }
  return rows;
}

}  // namespace zeroth::trainer
