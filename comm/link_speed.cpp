#include "comm/link_speed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/collective_info.h"

namespace zeroth::comm {
namespace {

constexpr int64_t kFirstBytes = 64 << 10;
constexpr int64_t kMaxProbeBytes = 16 << 20;
constexpr int64_t kGrowth = 4;
constexpr double kMaxProbeSeconds = 0.08;

std::string format_rate(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
  return fmt::format("{:.3g} MB/s", bytes_per_second / 1e6);
}

// Returns the maximum of `seconds` over all ranks of the world.
double slowest(const DeviceMesh& mesh, double seconds) {
  const torch::Tensor max_seconds =
      at::full({1}, seconds, torch::TensorOptions(torch::kFloat).device(mesh.device()));
  mesh.world().all_reduce(max_seconds, ReduceOp::kMax, "the speed of links").wait();
  return max_seconds.item<double>();
}

// Returns the bytes of the whole tensor per second for the largest all-gather, the better of two:
// the first may find neither threads nor connections awake. Small ones fit into the burst that a
// switch lets pass. Groups of one rank take no time, but participate.
double all_gather_rate(const DeviceMesh& mesh, Group& group) {
  double rate = 0;
  for (int64_t bytes = kFirstBytes; bytes > 0;) {
    const int64_t each = bytes / 4 / group.size();
    const auto options = torch::TensorOptions(torch::kFloat).device(mesh.device());
    const torch::Tensor part = at::full({each}, 0, options);
    const torch::Tensor whole = at::empty({each * group.size()}, options);
    const auto once = [&] {
      slowest(mesh, 0);
      const Timer time;
      group.all_gather(whole, part, "the speed of links").wait();
      whole.narrow(0, 0, 1).item<float>();  // waits for a device, too
      return slowest(mesh, time.seconds());
    };
    const double first = once(), seconds = std::min(first, once());
    rate = static_cast<double>(whole.nbytes()) / seconds;
    bytes = next_probe_bytes(bytes, seconds);
  }
  return rate;
}

}  // namespace

std::string to_string(const LinkSpeed& speed) {
  const std::string inter_node =
      fmt::format("inter-node {} per host", format_rate(speed.inter_node));
  if (speed.intra_node == 0) return inter_node;
  return fmt::format("intra-node {} per rank, {}", format_rate(speed.intra_node), inter_node);
}

int64_t next_probe_bytes(int64_t bytes, double seconds) {
  const bool ends = bytes * kGrowth > kMaxProbeBytes || seconds * kGrowth > kMaxProbeSeconds;
  return ends ? 0 : bytes * kGrowth;
}

LinkSpeed measure_links(const DeviceMesh& mesh) {
  Partition here{"links of a host", {}};
  size_t max_ranks = 0;
  for (const Node& node : mesh.nodes()) {
    here.parts.push_back(node.ranks);
    max_ranks = std::max(max_ranks, node.ranks.size());
  }
  const auto share = [](size_t part, size_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  LinkSpeed speed;
  const auto nodes = mesh.nodes().size();
  speed.inter_node = all_gather_rate(mesh, mesh.world()) * share(nodes - 1, nodes);
  if (max_ranks == 1) return speed;
  const auto group = mesh.world().split(here);
  speed.intra_node = all_gather_rate(mesh, *group) * share(max_ranks - 1, max_ranks);
  return speed;
}

}  // namespace zeroth::comm
