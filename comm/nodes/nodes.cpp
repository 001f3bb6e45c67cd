#include "comm/nodes/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace zeroth::comm {
namespace {

constexpr size_t kMaxListedNodes = 8;

}  // namespace

Nodes group_by_node(const std::vector<NodeIdentity>& identities) {
  Nodes nodes;
  std::map<std::string, size_t> known;  // by id
  std::map<std::string, int> names;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    const auto [found, is_new] = known.try_emplace(identities[rank].id, nodes.size());
    if (is_new) {
      nodes.push_back({identities[rank].name, {}});
      ++names[identities[rank].name];
    }
    nodes[found->second].ranks.push_back(static_cast<int>(rank));
  }
  for (Node& node : nodes) {
    if (names[node.name] > 1) node.name += fmt::format(" ({})", node.ranks.front());
  }
  return nodes;
}

const Node& node_of(const Nodes& nodes, int rank) {
  const auto node = std::find_if(nodes.begin(), nodes.end(), [rank](const Node& candidate) {
    return std::binary_search(candidate.ranks.begin(), candidate.ranks.end(), rank);
  });
  ZEROTH_CHECK(node != nodes.end(), "rank {} is on none of {} hosts", rank, nodes.size());
  return *node;
}

int local_rank(const Node& node, int rank) {
  return static_cast<int>(std::ranges::find(node.ranks, rank) - node.ranks.begin());
}

int count_ranks(const Nodes& nodes) {
  int ranks = 0;
  for (const Node& node : nodes) ranks += static_cast<int>(node.ranks.size());
  return ranks;
}

std::pair<size_t, size_t> min_max_ranks(const Nodes& nodes) {
  const auto [fewest, greatest] =
      std::ranges::minmax_element(nodes, {}, [](const Node& node) { return node.ranks.size(); });
  return {fewest->ranks.size(), greatest->ranks.size()};
}

std::string describe_rank(const Nodes& nodes, int rank) {
  return fmt::format("rank {} on {}", rank, node_of(nodes, rank).name);
}

std::string describe_nodes(const Nodes& nodes) {
  if (nodes.size() > kMaxListedNodes) {
    const auto [fewest, greatest] = min_max_ranks(nodes);
    return fmt::format(
        "{} ({} ranks each)", nodes.size(),
        fewest == greatest ? fmt::format("{}", fewest) : fmt::format("{} to {}", fewest, greatest));
  }
  std::vector<std::string> each;
  for (const Node& node : nodes)
    each.push_back(fmt::format("{} (rank{} {})", node.name, node.ranks.size() == 1 ? "" : "s",
                               fmt::join(node.ranks, ", ")));
  return fmt::format("{}", fmt::join(each, ", "));
}

bool NodeLayout::in_order() const {
  int next = 0;
  for (const auto& ranks : nodes) {
    for (const int rank : ranks) {
      if (rank != next++) return false;
    }
  }
  return true;
}

NodeLayout node_layout(const std::vector<int>& part, const Nodes& nodes, int rank) {
  NodeLayout layout;
  for (const Node& node : nodes) {
    std::vector<int> ranks;
    for (int i = 0; i < std::ssize(part); ++i) {
      if (std::binary_search(node.ranks.begin(), node.ranks.end(), part[static_cast<size_t>(i)]))
        ranks.push_back(i);
    }
    if (!ranks.empty()) layout.nodes.push_back(std::move(ranks));
  }
  ZEROTH_CHECK(!layout.nodes.empty(), "{} ranks on no host", part.size());
  const bool even = std::all_of(
      layout.nodes.begin(), layout.nodes.end(),
      [&](const std::vector<int>& ranks) { return ranks.size() == layout.nodes.front().size(); });
  if (!even) {
    layout.nodes.clear();
    for (int i = 0; i < std::ssize(part); ++i) layout.nodes.push_back({i});
  }
  for (int node = 0; node < layout.num_nodes(); ++node) {
    const auto& ranks = layout.nodes[static_cast<size_t>(node)];
    for (int local = 0; local < std::ssize(ranks); ++local) {
      if (part[static_cast<size_t>(ranks[static_cast<size_t>(local)])] != rank) continue;
      layout.node = node;
      layout.local = local;
    }
  }
  return layout;
}

}  // namespace zeroth::comm
