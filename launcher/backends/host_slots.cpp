#include "launcher/backends/host_slots.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/run/slots.h"

namespace zeroth::launcher {
namespace {

// NamedSlots has, for each host of the hostfile, the slots that a filter names; empty: the host is
// not named.
using NamedSlots = std::vector<std::set<int>>;

std::vector<int> first_slots(int count) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

class HostFilter {
 public:
  HostFilter(std::string_view flag, std::string_view text, const std::vector<HostEntry>& hosts)
      : flag_(flag), text_(text), hosts_(hosts), named_(hosts.size()) {
    for (size_t i = 0; i < hosts.size(); ++i) indices_.emplace(host_key(hosts[i].host), i);
  }

  NamedSlots read() {
    std::string_view rest = text_;
    while (true) {
      const size_t end = end_of_term(rest);
      read_term(rest.substr(0, end));
      if (end == rest.size()) return named_;
      rest.remove_prefix(end + 1);
    }
  }

 private:
  template <typename... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) const {
    throw UsageError("{} {}: {}", flag_, shortened(text_),
                     fmt::format(format, std::forward<Values>(values)...));
  }

  // Returns where the slots after a name begin: its ':', or the end. Colons inside brackets, and in
  // a term that is an IPv6 address, belong to the address.
  static size_t end_of_name(std::string_view term) {
    const size_t bracket = term.rfind(']');
    const bool bare = bracket == std::string_view::npos && is_ipv6(term);
    if (bare) return term.size();
    return std::min(term.find(':', bracket == std::string_view::npos ? 0 : bracket), term.size());
  }

  // Returns the end of a term: an '@' separates terms, unless it belongs to a USER@HOST of the
  // hostfile.
  size_t end_of_term(std::string_view rest) const {
    const size_t at = std::min(rest.find('@'), rest.size());
    if (at == rest.size()) return at;
    const size_t next = std::min(rest.find('@', at + 1), rest.size());
    const std::string_view both = rest.substr(0, next);
    const std::string_view name = both.substr(0, end_of_name(both));
    return find_with_user(name) < hosts_.size() ? next : at;
  }

  size_t find(std::string_view name) const {
    const auto found = indices_.find(host_key(name));
    return found == indices_.end() ? hosts_.size() : found->second;
  }

  size_t find_with_user(std::string_view name) const {
    const size_t index = find(name);
    if (index == hosts_.size()) return index;
    const std::string& host = hosts_[index].host;
    const std::string_view user = std::string_view(host).substr(0, host.rfind('@') + 1);
    return !user.empty() && name.starts_with(user) ? index : hosts_.size();
  }

  size_t find_host(std::string_view name) const {
    const size_t index = find(name);
    if (index < hosts_.size()) return index;
    std::vector<std::string> known;
    for (const HostEntry& entry : hosts_) known.push_back(entry.host);
    refuse("unknown host '{}'; the hostfile has {}", shortened(name),
           shortened(fmt::format("{}", fmt::join(known, ", "))));
  }

  void read_term(std::string_view term) {
    const size_t end = end_of_name(term);
    const size_t host = find_host(term.substr(0, end));
    std::set<int>& slots = named_[host];
    if (end == term.size()) {
      for (int slot = 0; slot < hosts_[host].slots; ++slot) slots.insert(slot);
      return;
    }
    std::string_view rest = term.substr(end + 1);
    while (true) {
      const size_t comma = std::min(rest.find(','), rest.size());
      slots.insert(read_slot(rest.substr(0, comma), hosts_[host]));
      if (comma == rest.size()) return;
      rest.remove_prefix(comma + 1);
    }
  }

  int read_slot(std::string_view text, const HostEntry& host) const {
    if (text.empty()) refuse("a slot of {} is missing", host.host);
    int slot = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), slot);
    const bool known =
        error == std::errc() && stop == text.data() + text.size() && slot >= 0 && slot < host.slots;
    if (!known)
      refuse("unknown slot {}; {} has 0 to {} (line {} of the hostfile)", shortened(text),
             host.host, host.slots - 1, host.line);
    return slot;
  }

  std::string_view flag_;
  std::string_view text_;
  const std::vector<HostEntry>& hosts_;
  std::map<std::string, size_t> indices_;  // by host_key
  NamedSlots named_;
};

std::vector<HostSlots> filter_hosts(const std::vector<HostEntry>& hosts,
                                    const LaunchOptions& options) {
  const bool include = !options.include.empty();
  const std::string_view flag = include ? "--include" : "--exclude";
  const std::string& text = include ? options.include : options.exclude;
  const NamedSlots named = HostFilter(flag, text, hosts).read();
  std::vector<HostSlots> chosen;
  for (size_t i = 0; i < hosts.size(); ++i) {
    HostSlots host{hosts[i].host, {}};
    for (int slot = 0; slot < hosts[i].slots; ++slot)
      if (named[i].contains(slot) == include) host.slots.push_back(slot);
    if (!host.slots.empty()) chosen.push_back(std::move(host));
  }
  if (chosen.empty()) throw UsageError("{} {}: no slot is left", flag, shortened(text));
  return chosen;
}

HostSlots first_slots_of(const HostEntry& entry, const LaunchOptions& options) {
  const int count = options.num_ranks.value_or(entry.slots);
  if (count > kMaxSlots)
    throw UsageError("--num_gpus {}: a host has at most {} slots", count, kMaxSlots);
  if (count > entry.slots && !options.share_gpus)
    throw UsageError(
        "--num_gpus {}, but {} has only {} (line {} of the hostfile; --share-gpus lets several "
        "ranks use one GPU)",
        count, entry.host, pluralize(entry.slots, "slot"), entry.line);
  return {entry.host, first_slots(count)};
}

}  // namespace

std::vector<HostSlots> choose_hosts(const std::vector<HostEntry>& hosts,
                                    const LaunchOptions& options) {
  check_filters_agree(options);
  if (!options.include.empty() || !options.exclude.empty()) return filter_hosts(hosts, options);
  const auto num_nodes = static_cast<int>(hosts.size());
  const int count = options.hosts.num_nodes.value_or(num_nodes);
  if (count > num_nodes)
    throw UsageError("--num_nodes {}, but the hostfile has only {}", count,
                     pluralize(num_nodes, "host"));
  std::vector<HostSlots> chosen;
  for (int i = 0; i < count; ++i)
    chosen.push_back(first_slots_of(hosts[static_cast<size_t>(i)], options));
  return chosen;
}

int count_ranks(const std::vector<HostSlots>& hosts) {
  return first_rank_of(hosts, static_cast<int>(hosts.size()));
}

int first_rank_of(const std::vector<HostSlots>& hosts, int host) {
  int rank = 0;
  for (int i = 0; i < host; ++i)
    rank += static_cast<int>(hosts[static_cast<size_t>(i)].slots.size());
  return rank;
}

}  // namespace zeroth::launcher
