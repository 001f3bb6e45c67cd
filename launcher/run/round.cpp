#include "launcher/run/round.h"

#include <fmt/format.h>

#include <csignal>
#include <string_view>

#include "base/printable.h"
#include "base/units.h"
#include "base/usage_error.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMostCause = 400;  // as ranks accept it (comm/round.h)
constexpr std::string_view kCut = "...";

std::string first_line(const std::string& text) {
  std::string line = printable(text.substr(0, text.find('\n')));
  if (line.size() <= kMostCause) return line;
  size_t end = kMostCause - kCut.size();
  while ((line[end] & 0xc0) == 0x80) --end;  // within a character
  line.replace(end, std::string::npos, kCut);
  return line;
}

bool is_usage(const JobOutcome& outcome) {
  return outcome.end == JobEnd::kFailed && outcome.status == kUsageCode;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> round_variables(const Round& round) {
  if (round.run.empty()) return {};
  std::vector<std::pair<std::string, std::string>> variables = {
      {"ZEROTH_RUN", round.run}, {"ZEROTH_ROUND", std::to_string(round.number)}};
  if (round.number > 0) variables.emplace_back("ZEROTH_ROUND_CAUSE", round.cause);
  return variables;
}

Rounds::Rounds(std::string run, int max_restarts) : max_restarts_(max_restarts) {
  current_.run = std::move(run);
}

bool Rounds::go_on(const JobOutcome& outcome, const std::string& cause) {
  if (outcome.signal != 0) return false;  // somebody wants it to end
  const bool regrouped = outcome.end == JobEnd::kRegrouped;
  if (!regrouped && (outcome.end != JobEnd::kFailed || is_usage(outcome))) return false;
  if (!regrouped && restarts_ == max_restarts_) return false;
  if (!regrouped) ++restarts_;
  ++current_.number;
  const std::string& of_outcome = outcome.cause.empty() ? outcome.message : outcome.cause;
  current_.cause = first_line(cause.empty() ? of_outcome : cause);
  return true;
}

std::string Rounds::describe_restarts() const {
  return fmt::format("{} of {} restarts taken", restarts_, max_restarts_);
}

std::string Rounds::why_no_more(const JobOutcome& outcome) const {
  if (outcome.end != JobEnd::kFailed || outcome.signal != 0 || max_restarts_ == 0) return "";
  if (is_usage(outcome))
    return "the run is not started again: exit code 2 says that what it was told is wrong";
  return fmt::format("the run is not started again: --max-restarts {} {} taken", max_restarts_,
                     max_restarts_ == 1 ? "is" : "are");
}

int exit_status(const JobOutcome& outcome, std::optional<int> requeue_code) {
  const bool to_requeue = outcome.end != JobEnd::kFinished && outcome.signal == SIGTERM;
  return to_requeue && requeue_code ? *requeue_code : outcome.status;
}

}  // namespace zeroth::launcher
