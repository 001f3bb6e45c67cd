#include "launcher/backends/hostfile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <cctype>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/run/slots.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
constexpr std::string_view kForm = "expected 'HOST slots=N'";
constexpr size_t kMaxNameBytes = 253, kMaxLabelBytes = 63, kMaxUserBytes = 64;

// Returns whether `text` consists of letters, digits and `others`, and begins with a letter, a
// digit or '_'.
bool is_plain(std::string_view text, std::string_view others) {
  const auto is_one_of = [](char c, std::string_view special) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || special.find(c) != special.npos;
  };
  return !text.empty() && is_one_of(text.front(), "_") &&
         std::ranges::all_of(text, [&](char c) { return is_one_of(c, others); });
}

// Returns the host without user and brackets.
std::string_view host_address(std::string_view host) {
  const std::string_view address = host.substr(host.rfind('@') + 1);  // without '@' all of it
  const bool brackets = address.size() > 2 && address.front() == '[' && address.back() == ']';
  return brackets ? address.substr(1, address.size() - 2) : address;
}

// Accepts "fe80::1%eth0": the interface is not part of the address.
bool is_ipv6_address(std::string_view text) {
  const size_t percent = text.find('%');
  if (percent != std::string_view::npos && !is_plain(text.substr(percent + 1), "._-")) return false;
  boost::system::error_code error;
  boost::asio::ip::make_address_v6(std::string(text.substr(0, percent)), error);
  return !error;
}

bool is_name(std::string_view text) {
  if (!is_plain(text, "._-") || text.size() > kMaxNameBytes) return false;
  size_t label = 0;
  for (const char c : text) {
    if (c == '.' && label == 0) return false;
    label = c == '.' ? 0 : label + 1;
    if (label > kMaxLabelBytes) return false;
  }
  return true;
}

std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks, end), text.size()));
  return word;
}

std::string_view trim_line(std::string_view text) {
  text = text.substr(0, text.find('#'));
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Parses the text after the host; returns the error.
std::string parse_slots(std::string_view rest, int& slots) {
  constexpr std::string_view kKey = "slots=";
  const std::string_view word = next_word(rest);
  if (!word.starts_with(kKey))
    return word.empty() ? fmt::format("slots=N is missing; {}", kForm)
                        : fmt::format("'{}' instead of slots=N", shortened(word));
  const std::string_view digits = word.substr(kKey.size());
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, slots);
  const bool number = !digits.empty() && digits.front() != '-' && stop == end;
  if (!number) return fmt::format("slots={}: must be a whole number", shortened(digits));
  if (error != std::errc() || slots < 1 || slots > kMaxSlots)
    return fmt::format("slots={}: must be from 1 to {}", shortened(digits), kMaxSlots);
  if (!rest.empty())
    return fmt::format("unexpected '{}' after slots={}: only a comment (#) is allowed there",
                       shortened(rest), slots);
  return "";
}

// NamedSlots has, for each host of the hostfile, the slots that a filter names; empty: the host is
// not named.
using NamedSlots = std::vector<std::set<int>>;

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
    const auto found = indices_.find(host_key(name));
    if (found == indices_.end()) return at;
    const std::string& host = hosts_[found->second].host;
    const std::string user = host.substr(0, host.rfind('@') + 1);
    return !user.empty() && name.starts_with(user) ? next : at;
  }

  size_t find_host(std::string_view name) const {
    const auto found = indices_.find(host_key(name));
    if (found != indices_.end()) return found->second;
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
    const auto slot = parse_number<int>(text);
    if (!slot || *slot < 0 || *slot >= host.slots)
      refuse("unknown slot {}; {} has 0 to {} (line {} of the hostfile)", shortened(text),
             host.host, host.slots - 1, host.line);
    return *slot;
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

std::string host_error(std::string_view host) {
  const size_t at = host.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view user = host.substr(0, at);
    if (!is_plain(user, "._-") || user.size() > kMaxUserBytes)
      return fmt::format("invalid user '{}' in '{}'", shortened(user), shortened(host));
  }
  const std::string_view address = host_address(host);
  if (is_name(address) || is_ipv6_address(address)) return "";
  return fmt::format("'{}' is neither a host's name nor an address", shortened(host));
}

bool is_ipv6(std::string_view host) {
  return is_ipv6_address(host_address(host));
}

std::string host_key(std::string_view host) {
  std::string key(host_address(host));
  const size_t percent = key.find('%');
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address_v6(key.substr(0, percent), error);
  if (!error)
    return address.to_string() + (percent == std::string::npos ? "" : key.substr(percent));
  for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& name) {
  std::vector<HostEntry> hosts;
  std::vector<std::string> errors;
  std::map<std::string, int> lines;  // by host_key
  for (int line = 1; !text.empty(); ++line) {
    std::string_view rest = trim_line(next_field(text, '\n'));
    if (rest.empty()) continue;
    HostEntry entry{.host = std::string(next_word(rest)), .line = line};
    std::string error = parse_slots(rest, entry.slots);
    if (error.empty()) error = host_error(entry.host);
    if (error.empty()) {
      const auto [found, is_new] = lines.emplace(host_key(entry.host), line);
      if (!is_new)
        error = fmt::format("duplicate host '{}': already in line {}", shortened(entry.host),
                            found->second);
    }
    if (!error.empty())
      errors.push_back(fmt::format("{}: line {}: {}", shortened(name), line, error));
    std::erase_if(entry.host, [](char c) { return c == '[' || c == ']'; });
    hosts.push_back(std::move(entry));
  }
  if (!errors.empty()) throw UsageError("{}", listed(errors));
  if (hosts.empty())
    throw UsageError("{}: contains no hosts; {} in each line", shortened(name), kForm);
  if (hosts.size() > kMaxHosts)
    throw UsageError("{}: {} hosts, at most {} are supported", shortened(name), hosts.size(),
                     kMaxHosts);
  return hosts;
}

std::vector<HostEntry> read_hostfile(const std::filesystem::path& path) {
  return parse_hostfile(rethrow_as_usage_error([&] { return read_file(path, kMaxHostfileBytes); }),
                        path.string());
}

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

std::vector<int> first_slots(int count) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

std::vector<std::string> host_names(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.host);
  return names;
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
