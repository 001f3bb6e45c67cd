#include "comm/device_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/error.h"
#include "base/machine/timer.h"
#include "comm/comm_log.h"
#include "comm/discover_nodes.h"
#include "comm/groups/members.h"

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

DeviceMesh::DeviceMesh(torch::Device device, std::unique_ptr<Group> world)
    : DeviceMesh(device, BootstrapInfo{}, std::move(world)) {}

DeviceMesh::DeviceMesh(torch::Device device, BootstrapInfo info, std::unique_ptr<Group> world)
    : device_(device),
      info_(std::make_unique<BootstrapInfo>(std::move(info))),
      world_(std::move(world)),
      unlogged_world_(world_.get()),
      layout_(MeshShape::data_parallel(world_->size())) {
  if (!info_->nodes.empty()) return;
  info_->nodes = {{local_node_identity(std::nullopt).name, all_ranks(world_->size())}};
}

DeviceMesh::~DeviceMesh() = default;

int DeviceMesh::local_size() const {
  return static_cast<int>(node_of(nodes(), rank()).ranks.size());
}

void DeviceMesh::set_shape(const MeshShape& shape) {
  if (shape == layout_.shape()) return;
  ZEROTH_CHECK(parts_.empty(), "{} groups already exist", parts_.size());
  if (shape.ranks() != world_size())
    throw Error("a mesh of {} has {} ranks, the world {}", shape.str(), shape.ranks(),
                world_size());
  layout_ = MeshLayout(shape);
  for (const std::vector<int>& part : layout_.along({MeshDim::kTp}).parts) {
    const Nodes& nodes = info_->nodes;
    if (node_of(nodes, part.front()).ranks == node_of(nodes, part.back()).ranks) continue;
    info_->notes.push_back(fmt::format(
        "ranks {} and {} share every layer and are on different machines ({}, {}): each layer "
        "waits for the network; an autotp_size of at most {} keeps such ranks on one machine",
        part.front(), part.back(), node_of(nodes, part.front()).name,
        node_of(nodes, part.back()).name, min_max_ranks(nodes).first));
    break;
  }
}

template <typename Make>
Group& DeviceMesh::part(const std::string& name, const Make& make) const {
  auto known = parts_.find(name);
  if (known == parts_.end()) known = parts_.emplace(name, make()).first;
  return *known->second;
}

Group& DeviceMesh::group(MeshDims dims) const {
  const int ranks = layout_.shape().ranks_along(dims);
  if (ranks == world_size()) return *world_;
  return part(MeshLayout::to_string(dims),
              [&] { return ranks == 1 ? make_solo_group() : world_->split(layout_.along(dims)); });
}

Group& DeviceMesh::shard_group(int num_replicas) const {
  if (num_replicas == 1) return dp_group();
  if (num_replicas == layout_.shape()[MeshDim::kTp]) return group({MeshDim::kDp, MeshDim::kTp});
  return part(layout_.shard_group(num_replicas));
}

Group& DeviceMesh::pp_group(const std::string& name, const std::vector<int>& coordinates) const {
  const Partition partition = layout_.pp_group(name, coordinates);
  return part(partition.name, [&] { return unlogged_world_->split(partition); });
}

Group& DeviceMesh::secondary_shard_group(int num_replicas, int dp_ranks) const {
  return part(layout_.secondary_shard_group(num_replicas, dp_ranks));
}

Group& DeviceMesh::secondary_replica_group(int num_replicas, int dp_ranks) const {
  return part(layout_.secondary_replica_group(num_replicas, dp_ranks));
}

Group& DeviceMesh::part(const Partition& partition) const {
  return part(partition.name, [&] { return world_->split(partition); });
}

CommTimes DeviceMesh::times() const {
  CommTimes sum;
  for (const auto& [name, times] : times_by_group()) sum += times;
  return sum;
}

std::map<std::string, CommTimes> DeviceMesh::times_by_group() const {
  std::map<std::string, CommTimes> times = {{"world", world_->times()}};
  for (const auto& [name, part] : parts_) times[name] = part->times();
  return times;
}

void DeviceMesh::log_collectives(const configs::CommsLoggerConfig& config) {
  if (log_) return;
  log_ = std::make_unique<CommLog>(config);
  world_ = make_logged_group(std::move(world_), *log_);
  for (auto& [name, part] : parts_) part = make_logged_group(std::move(part), *log_);
}

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
  for (const Node& node : mesh.nodes()) here.parts.push_back(node.ranks);
  const size_t max_ranks = min_max_ranks(mesh.nodes()).second;
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
