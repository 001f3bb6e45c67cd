#include "launcher/run/restart_policy.h"

#include <fmt/format.h>

#include <csignal>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kCut = "...";

std::string first_line(const std::string& text) {
  std::string line = printable(text.substr(0, text.find('\n')));
  if (line.size() <= kMaxCauseBytes) return line;
  size_t end = kMaxCauseBytes - kCut.size();
  while ((line[end] & 0xc0) == 0x80) --end;  // inside a UTF-8 character
  line.replace(end, std::string::npos, kCut);
  return line;
}

bool is_usage_error(const JobOutcome& outcome) {
  return outcome.end == JobEnd::kFailed && outcome.status == kUsageExitCode;
}

}  // namespace

RestartPolicy::RestartPolicy(std::string run, int max_restarts) : max_restarts_(max_restarts) {
  current_.run = std::move(run);
}

bool RestartPolicy::try_restart(const JobOutcome& outcome, const std::string& cause) {
  if (outcome.signal != 0) return false;  // the signal asks for the end of the run
  const bool restart_requested = outcome.end == JobEnd::kRestartRequested;
  if (!restart_requested && (outcome.end != JobEnd::kFailed || is_usage_error(outcome)))
    return false;
  if (!restart_requested && restarts_ == max_restarts_) return false;
  if (!restart_requested) ++restarts_;
  ++current_.index;
  const std::string& outcome_cause = outcome.cause.empty() ? outcome.message : outcome.cause;
  current_.cause = first_line(cause.empty() ? outcome_cause : cause);
  return true;
}

std::string RestartPolicy::describe_restarts() const {
  return fmt::format("{} of {} restarts used", restarts_, max_restarts_);
}

std::string RestartPolicy::no_restart_reason(const JobOutcome& outcome) const {
  if (outcome.end != JobEnd::kFailed || outcome.signal != 0 || max_restarts_ == 0) return "";
  if (is_usage_error(outcome)) return "the run is not restarted: exit code 2 is a usage error";
  return fmt::format("the run is not restarted: --max-restarts {} {} used up", max_restarts_,
                     max_restarts_ == 1 ? "is" : "are");
}

int to_exit_code(const JobOutcome& outcome, std::optional<int> requeue_code) {
  const bool to_requeue = outcome.end != JobEnd::kFinished && outcome.signal == SIGTERM;
  return to_requeue && requeue_code ? *requeue_code : outcome.status;
}

}  // namespace zeroth::launcher
