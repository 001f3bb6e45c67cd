#include "comm/link_speed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/call.h"

namespace zeroth::comm {
namespace {

constexpr int64_t kFirstBytes = 64 << 10;
constexpr int64_t kMostBytes = 16 << 20;
constexpr int64_t kGrowth = 4;
constexpr double kLongestSeconds = 0.08;

std::string rate_text(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
  return fmt::format("{:.3g} MB/s", bytes_per_second / 1e6);
}

// Of the slowest of all ranks of the world.
double slowest(const Mesh& mesh, double seconds) {
  const torch::Tensor most =
      at::full({1}, seconds, torch::TensorOptions(torch::kFloat).device(mesh.device()));
  mesh.world().all_reduce(most, Reduce::kMax, "the speed of links").wait();
  return most.item<double>();
}

// Bytes a second of the whole tensor of the largest all-gather, the better of two: the first one
// may find neither threads nor connections awake. Small ones fit into what a switch lets pass at
// once. Groups of one rank take no time, but part.
double gathered_per_second(const Mesh& mesh, Group& group) {
  double rate = 0;
  for (int64_t bytes = kFirstBytes; bytes > 0;) {
    const int64_t each = bytes / 4 / group.size();
    const auto options = torch::TensorOptions(torch::kFloat).device(mesh.device());
    const torch::Tensor part = at::full({each}, 0, options);
    const torch::Tensor whole = at::empty({each * group.size()}, options);
    const auto once = [&] {
      slowest(mesh, 0);
      const Stopwatch time;
      group.all_gather(whole, part, "the speed of links").wait();
      whole.narrow(0, 0, 1).item<float>();  // a device has ended, too
      return slowest(mesh, time.seconds());
    };
    const double first = once(), seconds = std::min(first, once());
    rate = static_cast<double>(whole.nbytes()) / seconds;
    bytes = next_probe(bytes, seconds);
  }
  return rate;
}

}  // namespace

std::string text_of(const LinkSpeed& speed) {
  const std::string across = fmt::format("across {} from each host", rate_text(speed.across));
  if (speed.within == 0) return across;
  return fmt::format("within a host {} to each rank, {}", rate_text(speed.within), across);
}

int64_t next_probe(int64_t bytes, double seconds) {
  const bool ends = bytes * kGrowth > kMostBytes || seconds * kGrowth > kLongestSeconds;
  return ends ? 0 : bytes * kGrowth;
}

LinkSpeed measure_links(const Mesh& mesh) {
  Partition here{"links of a host", {}};
  size_t most_ranks = 0;
  for (const Host& host : mesh.hosts()) {
    here.parts.push_back(host.ranks);
    most_ranks = std::max(most_ranks, host.ranks.size());
  }
  const auto share = [](size_t part, size_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  LinkSpeed speed;
  const auto hosts = mesh.hosts().size();
  speed.across = gathered_per_second(mesh, mesh.world()) * share(hosts - 1, hosts);
  if (most_ranks == 1) return speed;
  const auto group = mesh.world().split(here);
  speed.within = gathered_per_second(mesh, *group) * share(most_ranks - 1, most_ranks);
  return speed;
}

}  // namespace zeroth::comm
