#include "launcher/cluster/elastic_words.h"

#include <fmt/ranges.h>

#include "base/units.h"

namespace zeroth::launcher {
namespace {

std::string hosts_text(const std::vector<std::string>& hosts) {
  return fmt::format("host{} {}", hosts.size() > 1 ? "s" : "", fmt::join(hosts, ", "));
}

}  // namespace

std::string have_come(const std::vector<std::string>& hosts) {
  return fmt::format("{} {} come", hosts_text(hosts), hosts.size() > 1 ? "have" : "has");
}

std::string were_sent(const std::vector<std::string>& hosts, int signal) {
  return fmt::format("{} {} sent {}", hosts_text(hosts), hosts.size() > 1 ? "were" : "was",
                     signal_name(signal));
}

std::string waits_for_more(size_t num_there, int min_hosts, std::chrono::milliseconds limit,
                           const std::vector<std::string>& silent) {
  return fmt::format(
      "{} of at least {} are there: the run waits up to {} s for more{}",
      counted(static_cast<int64_t>(num_there), "host"), min_hosts, limit.count() / 1000,
      silent.empty() ? "" : fmt::format("; no answer yet of {}", fmt::join(silent, ", ")));
}

std::string too_few_hosts(const std::vector<std::string>& there, int min_hosts,
                          std::chrono::milliseconds waited, int requeue_code) {
  return fmt::format(
      "{} after {} s, at least {} must be there (--elastic): what is saved stands, start the run "
      "again (exit code {})",
      there.empty() ? "no host is there"
                    : fmt::format("only {} ({}) is there", counted(std::ssize(there), "host"),
                                  fmt::join(there, ", ")),
      waited.count() / 1000, min_hosts, requeue_code);
}

}  // namespace zeroth::launcher
