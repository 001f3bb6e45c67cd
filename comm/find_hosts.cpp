#include "comm/find_hosts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine_id.h"
#include "base/printable.h"
#include "comm/call.h"
#include "comm/hierarchical_group.h"
#include "comm/join_host.h"

namespace zeroth::comm {
namespace {

constexpr size_t kLongestId = 200;
constexpr size_t kLongestName = 100;
constexpr const char* kOk = "ok";

std::string get(c10d::Store& store, const std::string& key, int rank, int from) {
  try {
    const std::vector<uint8_t> value = store.get(key);
    return {value.begin(), value.end()};
  } catch (const std::exception& cause) {
    throw Error("rank {}: rank {} did not connect: {}", rank, from, words_of(cause));
  }
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

HostCard card_of(const std::string& text) {
  const size_t end = text.find('\n');
  const std::string name = end == std::string::npos ? "unknown" : text.substr(end + 1);
  return {text.substr(0, std::min(end, kLongestId)), shortened(name, kLongestName)};
}

std::string text_of(const HostCard& card) {
  return shortened(card.id, kLongestId) + "\n" + shortened(card.name, kLongestName);
}

std::string cards_key(int rank) {
  return fmt::format("hosts/{}", rank);
}

int ranks_on(const Hosts& hosts) {
  int ranks = 0;
  for (const Host& host : hosts) ranks += static_cast<int>(host.ranks.size());
  return ranks;
}

void add_one_by_one(const Host& host, Hosts& hosts) {
  for (const int rank : host.ranks) hosts.push_back({host.name, {rank}});
}

void sort_by_first_rank(Hosts& hosts) {
  std::sort(hosts.begin(), hosts.end(),
            [](const Host& a, const Host& b) { return a.ranks.front() < b.ranks.front(); });
}

std::shared_ptr<SharedSegment> memory_of_its_own(int world_size) {
  return SharedSegment::alone(hierarchical_segment_bytes(1, world_size, RingSize()));
}

// What the first rank of each machine says of its memory; "" of those that share it.
std::vector<std::string> verdicts(c10d::Store& store, int rank, const Hosts& found,
                                  const std::string& own) {
  std::vector<std::string> all;
  for (const Host& host : found) {
    const int first = host.ranks.front();
    const std::string key = fmt::format("hosts/shared/{}", first);
    if (first == rank) set(store, key, own.empty() ? kOk : own);
    if (host.ranks.size() == 1) {
      all.emplace_back();
      continue;
    }
    const std::string said = get(store, key, rank, first);
    all.push_back(said == kOk ? "" : shortened(said, 500));
  }
  return all;
}

}  // namespace

HostCard this_machine(const std::optional<std::string>& host_id) {
  return {machine_id(host_id), host_id.value_or(machine_name())};
}

// Rank 0 gathers, and hands all cards to all.
Hosts find_hosts(c10d::Store& store, int rank, int size, const HostCard& card) {
  const char* const all_key = "hosts/all";
  if (rank != 0) set(store, cards_key(rank), text_of(card));
  if (rank == 0) {
    std::string all = text_of(card);
    for (int peer = 1; peer < size; ++peer) {
      const HostCard other = card_of(get(store, cards_key(peer), 0, peer));
      all += "\n" + printable(other.id) + "\n" + other.name;
    }
    set(store, all_key, all);
  }
  std::istringstream lines(get(store, all_key, rank, 0));
  std::vector<HostCard> cards;
  HostCard next;
  while (std::ssize(cards) <= size && std::getline(lines, next.id) &&
         std::getline(lines, next.name))
    cards.push_back({next.id.substr(0, kLongestId), shortened(next.name, kLongestName)});
  if (std::ssize(cards) != size)
    throw Error("rank {} of {}: rank 0 tells of the machines of {} ranks", rank, size,
                cards.size());
  return hosts_of(cards);
}

SharingHosts share_memory(const c10::intrusive_ptr<c10d::Store>& store, const std::string& run,
                          int rank, const Hosts& found, RingSize (*ring_of)(int ranks)) {
  const int size = ranks_on(found);
  const Host& here = host_of(found, rank);
  const auto local_size = static_cast<int>(here.ranks.size());
  SharingHosts sharing;
  sharing.ring = ring_of(local_size);
  const size_t bytes = hierarchical_segment_bytes(local_size, size, sharing.ring);
  HostSegment own;
  if (local_size > 1) {
    const auto local = std::find(here.ranks.begin(), here.ranks.end(), rank) - here.ranks.begin();
    const auto of_host =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("of/{}", here.ranks.front()), store);
    own = join_host(*of_host, run, static_cast<int>(local), local_size, bytes, here.ranks);
  }
  const auto said = verdicts(*store, rank, found, own.why_not);
  std::string complaint;
  for (size_t i = 0; i < found.size(); ++i) {
    if (said[i].empty()) {
      sharing.hosts.push_back(found[i]);
      continue;
    }
    if (complaint.empty()) complaint = fmt::format("{}: {}", found[i].name, said[i]);
    add_one_by_one(found[i], sharing.hosts);
  }
  sort_by_first_rank(sharing.hosts);
  sharing.why_not = complaint;
  sharing.segment = own.segment ? own.segment : memory_of_its_own(size);
  return sharing;
}

SharingHosts share_nothing(const Hosts& found, const std::string& why_not) {
  SharingHosts sharing;
  for (const Host& host : found) add_one_by_one(host, sharing.hosts);
  sort_by_first_rank(sharing.hosts);
  sharing.why_not = why_not;
  sharing.segment = memory_of_its_own(ranks_on(found));
  return sharing;
}

}  // namespace zeroth::comm
