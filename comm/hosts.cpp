#include "comm/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace zeroth::comm {
namespace {

constexpr size_t kFewHosts = 8;

}  // namespace

Hosts hosts_of(const std::vector<HostCard>& cards) {
  Hosts hosts;
  std::map<std::string, size_t> known;  // by id
  std::map<std::string, int> names;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const auto [found, is_new] = known.try_emplace(cards[rank].id, hosts.size());
    if (is_new) {
      hosts.push_back({cards[rank].name, {}});
      ++names[cards[rank].name];
    }
    hosts[found->second].ranks.push_back(static_cast<int>(rank));
  }
  for (Host& host : hosts) {
    if (names[host.name] > 1) host.name += fmt::format(" ({})", host.ranks.front());
  }
  return hosts;
}

const Host& host_of(const Hosts& hosts, int rank) {
  const auto host = std::find_if(hosts.begin(), hosts.end(), [rank](const Host& candidate) {
    return std::binary_search(candidate.ranks.begin(), candidate.ranks.end(), rank);
  });
  ZEROTH_CHECK(host != hosts.end(), "rank {} is on none of {} hosts", rank, hosts.size());
  return *host;
}

std::string name_on_host(const Hosts& hosts, int rank) {
  return fmt::format("rank {} on {}", rank, host_of(hosts, rank).name);
}

std::string list_of(const Hosts& hosts) {
  if (hosts.size() > kFewHosts) {
    const auto [least, most] = std::minmax_element(
        hosts.begin(), hosts.end(),
        [](const Host& a, const Host& b) { return a.ranks.size() < b.ranks.size(); });
    const auto fewest = least->ranks.size(), greatest = most->ranks.size();
    return fmt::format(
        "{} ({} ranks each)", hosts.size(),
        fewest == greatest ? fmt::format("{}", fewest) : fmt::format("{} to {}", fewest, greatest));
  }
  std::vector<std::string> each;
  for (const Host& host : hosts)
    each.push_back(fmt::format("{} (rank{} {})", host.name, host.ranks.size() == 1 ? "" : "s",
                               fmt::join(host.ranks, ", ")));
  return fmt::format("{}", fmt::join(each, ", "));
}

bool HostLayout::in_order() const {
  int next = 0;
  for (const auto& ranks : hosts) {
    for (const int rank : ranks) {
      if (rank != next++) return false;
    }
  }
  return true;
}

HostLayout layout_of(const std::vector<int>& part, const Hosts& hosts, int rank) {
  HostLayout layout;
  for (const Host& host : hosts) {
    std::vector<int> ranks;
    for (int i = 0; i < std::ssize(part); ++i) {
      if (std::binary_search(host.ranks.begin(), host.ranks.end(), part[static_cast<size_t>(i)]))
        ranks.push_back(i);
    }
    if (!ranks.empty()) layout.hosts.push_back(std::move(ranks));
  }
  ZEROTH_CHECK(!layout.hosts.empty(), "{} ranks on no host", part.size());
  const bool even = std::all_of(
      layout.hosts.begin(), layout.hosts.end(),
      [&](const std::vector<int>& ranks) { return ranks.size() == layout.hosts.front().size(); });
  if (!even) {
    layout.hosts.clear();
    for (int i = 0; i < std::ssize(part); ++i) layout.hosts.push_back({i});
  }
  for (int host = 0; host < layout.num_hosts(); ++host) {
    const auto& ranks = layout.hosts[static_cast<size_t>(host)];
    for (int local = 0; local < std::ssize(ranks); ++local) {
      if (part[static_cast<size_t>(ranks[static_cast<size_t>(local)])] != rank) continue;
      layout.host = host;
      layout.local = local;
    }
  }
  return layout;
}

}  // namespace zeroth::comm
