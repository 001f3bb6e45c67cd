#include "comm/discover_nodes.h"

#include <algorithm>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "base/error.h"
#include "base/machine/machine_id.h"
#include "base/text/printable.h"
#include "comm/bootstrap/key_value_store.h"
#include "comm/groups/hierarchical_group.h"
#include "comm/nodes/node_segment.h"

namespace zeroth::comm {
namespace {

constexpr size_t kMaxIdBytes = 200;
constexpr size_t kMaxNameBytes = 100;
constexpr const char* kOk = "ok";

NodeIdentity parse_identity(const std::string& text) {
  const size_t end = text.find('\n');
  const std::string name = end == std::string::npos ? "unknown" : text.substr(end + 1);
  return {text.substr(0, std::min(end, kMaxIdBytes)), shortened(name, kMaxNameBytes)};
}

std::string to_string(const NodeIdentity& identity) {
  return shortened(identity.id, kMaxIdBytes) + "\n" + shortened(identity.name, kMaxNameBytes);
}

std::string identity_key(int rank) {
  return fmt::format("hosts/{}", rank);
}

void add_single_ranks(const Node& node, Nodes& nodes) {
  for (const int rank : node.ranks) nodes.push_back({node.name, {rank}});
}

void sort_by_first_rank(Nodes& nodes) {
  std::ranges::sort(nodes, {}, [](const Node& node) { return node.ranks.front(); });
}

std::shared_ptr<SharedSegment> private_segment(int world_size) {
  return SharedSegment::create_private(hierarchical_segment_bytes(1, world_size, RingSize()));
}

// Returns the report of each node's first rank about its memory; "" for nodes that share it.
std::vector<std::string> verdicts(c10d::Store& store, int rank, const Nodes& all_nodes,
                                  const std::string& own) {
  std::vector<std::string> all;
  for (const Node& node : all_nodes) {
    const int first = node.ranks.front();
    const std::string key = fmt::format("hosts/shared/{}", first);
    if (first == rank) set_text(store, key, own.empty() ? kOk : own);
    if (node.ranks.size() == 1) {
      all.emplace_back();
      continue;
    }
    const std::string answer = get_text_from(store, key, rank, first);
    all.push_back(answer == kOk ? "" : shortened(answer, 500));
  }
  return all;
}

}  // namespace

NodeIdentity local_node_identity(const std::optional<std::string>& host_id) {
  return {machine_id(host_id), host_id.value_or(machine_name())};
}

// Rank 0 gathers all identities and sends them to all ranks.
Nodes discover_nodes(c10d::Store& store, int rank, int size, const NodeIdentity& identity) {
  const char* const all_key = "hosts/all";
  if (rank != 0) set_text(store, identity_key(rank), to_string(identity));
  if (rank == 0) {
    std::string all = to_string(identity);
    for (int peer = 1; peer < size; ++peer) {
      const NodeIdentity other = parse_identity(get_text_from(store, identity_key(peer), 0, peer));
      all += "\n" + printable(other.id) + "\n" + other.name;
    }
    set_text(store, all_key, all);
  }
  std::istringstream lines(get_text_from(store, all_key, rank, 0));
  std::vector<NodeIdentity> identities;
  NodeIdentity next;
  while (std::ssize(identities) <= size && std::getline(lines, next.id) &&
         std::getline(lines, next.name))
    identities.push_back({next.id.substr(0, kMaxIdBytes), shortened(next.name, kMaxNameBytes)});
  if (std::ssize(identities) != size)
    throw Error("rank {} of {}: rank 0 lists the machines of {} ranks", rank, size,
                identities.size());
  return group_by_node(identities);
}

NodeMemory share_node_memory(const c10::intrusive_ptr<c10d::Store>& store, const std::string& run,
                             int rank, const Nodes& all_nodes, RingSize (*ring_size)(int ranks)) {
  const int size = count_ranks(all_nodes);
  const Node& here = node_of(all_nodes, rank);
  const auto local_size = static_cast<int>(here.ranks.size());
  NodeMemory node_memory;
  node_memory.ring = ring_size(local_size);
  const size_t bytes = hierarchical_segment_bytes(local_size, size, node_memory.ring);
  NodeSegment own;
  if (local_size > 1) {
    const auto node_store =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("of/{}", here.ranks.front()), store);
    own =
        join_node_segment(*node_store, run, local_rank(here, rank), local_size, bytes, here.ranks);
  }
  const auto answer = verdicts(*store, rank, all_nodes, own.failure_reason);
  std::string first_failure;
  for (size_t i = 0; i < all_nodes.size(); ++i) {
    if (answer[i].empty()) {
      node_memory.nodes.push_back(all_nodes[i]);
      continue;
    }
    if (first_failure.empty()) first_failure = fmt::format("{}: {}", all_nodes[i].name, answer[i]);
    add_single_ranks(all_nodes[i], node_memory.nodes);
  }
  sort_by_first_rank(node_memory.nodes);
  node_memory.failure_reason = first_failure;
  node_memory.segment = own.segment ? own.segment : private_segment(size);
  return node_memory;
}

NodeMemory share_no_memory(const Nodes& all_nodes, const std::string& failure_reason) {
  NodeMemory node_memory;
  for (const Node& node : all_nodes) add_single_ranks(node, node_memory.nodes);
  sort_by_first_rank(node_memory.nodes);
  node_memory.failure_reason = failure_reason;
  node_memory.segment = private_segment(count_ranks(all_nodes));
  return node_memory;
}

}  // namespace zeroth::comm
