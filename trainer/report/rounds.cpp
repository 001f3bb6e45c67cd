#include "trainer/report/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"

namespace zeroth::trainer {

std::string to_json(const RoundRow& row) {
  using Json = nlohmann::ordered_json;
  return Json{{"step", row.step},
              {"round", row.round},
              {"hosts", row.hosts},
              {"ranks", row.ranks},
              {"cause", row.cause.empty() ? Json(nullptr) : Json(row.cause)},
              {"steps_lost", row.lost ? Json(*row.lost) : Json(nullptr)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_of(const RoundRow& row) {
  std::string text = fmt::format("{} behind step {} on {}, {}", row.round, row.step,
                                 counted(row.hosts, "host"), counted(row.ranks, "rank"));
  if (row.round > 0) {
    text +=
        row.lost ? fmt::format(", {} lost", counted(*row.lost, "step")) : ", steps lost unknown";
  }
  return row.cause.empty() ? text : fmt::format("{}: {}", text, row.cause);
}

Rounds::Rounds(const RunPlan& plan, bool writes, const std::string& run_name)
    : plan_(plan), counts_(writes && plan.round.told && plan.trains()) {
  record_ = plan.before.value_or(RoundRecord{});
  former_run_name_ = record_.run_name;
  record_.run = plan.round.run;
  record_.batch = plan.config.batch.train_batch_size;
  record_.micro_batch =
      std::max(plan.config.batch.micro_batch_size, plan.before ? plan.before->micro_batch : 1);
  if (former_run_name_.empty()) record_.run_name = run_name;
  if (!counts_) record_.rounds.clear();
}

void Rounds::require_ours() const {
  if (lock_ != nullptr) lock_->check();
}

void Rounds::begin(int64_t hosts, int64_t ranks) {
  if (!counts_) return;
  record_.rounds.push_back({.round = plan_.round.number,
                            .hosts = std::max<int64_t>(1, hosts),
                            .ranks = ranks,
                            .cause = plan_.round.cause});
  go_on_from(plan_.resumed ? plan_.resumed->step : 0);
}

void Rounds::go_on_from(int64_t step) {
  if (!counts_) return;
  RoundRow& row = record_.rounds.back();
  row.step = step;
  row.lost.reset();
  if (plan_.before) row.lost = std::max<int64_t>(0, plan_.before->step - step);
  if (plan_.round.number == 0) row.lost = 0;
  record_.step = step;
  write();
}

void Rounds::write() {
  if (plan_.flags.output.empty()) return;
  file_.emplace(plan_.flags.output, record_, [this] { require_ours(); });
}

void Rounds::step(int64_t step) {
  if (file_) file_->step(step);
}

std::vector<std::string> Rounds::lines() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < record_.rounds.size(); ++i) {
    const RoundRow& row = record_.rounds[i];
    const bool last = i + 1 == record_.rounds.size();
    if (last || !plan_.resumed || row.step > record_.step) lines.push_back(to_json(row));
  }
  return lines;
}

std::vector<monitor::PageFacts::Round> Rounds::rows() const {
  std::vector<monitor::PageFacts::Round> rows;
  for (const RoundRow& row : record_.rounds) {
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
