#include "comm/device_mesh.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "comm/comm_log.h"
#include "comm/discover_nodes.h"

namespace zeroth::comm {
namespace {

size_t min_ranks(const Nodes& nodes) {
  return std::min_element(
             nodes.begin(), nodes.end(),
             [](const Node& a, const Node& b) { return a.ranks.size() < b.ranks.size(); })
      ->ranks.size();
}

}  // namespace

DeviceMesh::DeviceMesh(torch::Device device, std::unique_ptr<Group> world)
    : DeviceMesh(device, BootstrapInfo{}, std::move(world)) {}

DeviceMesh::DeviceMesh(torch::Device device, BootstrapInfo info, std::unique_ptr<Group> world)
    : device_(device),
      info_(std::make_unique<BootstrapInfo>(std::move(info))),
      world_(std::move(world)),
      layout_(MeshShape::data_parallel(world_->size())) {
  if (!info_->nodes.empty()) return;
  std::vector<int> all(static_cast<size_t>(world_->size()));
  std::iota(all.begin(), all.end(), 0);
  info_->nodes = {{local_node_identity(std::nullopt).name, std::move(all)}};
}

DeviceMesh::~DeviceMesh() = default;

void DeviceMesh::set_shape(const MeshShape& shape) {
  if (shape == layout_.shape()) return;
  ZEROTH_CHECK(parts_.empty() && shard_groups_.empty(), "{} groups already exist",
               parts_.size() + shard_groups_.size());
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
        node_of(nodes, part.back()).name, min_ranks(nodes)));
    break;
  }
}

Group& DeviceMesh::group(MeshDims dims) const {
  const int ranks = layout_.shape().ranks_along(dims);
  if (ranks == world_size()) return *world_;
  const auto known = parts_.find(dims);
  if (known != parts_.end()) return *known->second;
  auto part = ranks == 1 ? make_solo_group() : world_->split(layout_.along(dims));
  return *parts_.emplace(dims, std::move(part)).first->second;
}

Group& DeviceMesh::shard_group(int num_replicas) const {
  if (num_replicas == 1) return dp_group();
  if (num_replicas == layout_.shape()[MeshDim::kTp]) return group({MeshDim::kDp, MeshDim::kTp});
  return part(layout_.shard_group(num_replicas));
}

Group& DeviceMesh::secondary_shard_group(int num_replicas, int dp_ranks) const {
  return part(layout_.secondary_shard_group(num_replicas, dp_ranks));
}

Group& DeviceMesh::secondary_replica_group(int num_replicas, int dp_ranks) const {
  return part(layout_.secondary_replica_group(num_replicas, dp_ranks));
}

Group& DeviceMesh::part(const Partition& partition) const {
  const auto known = shard_groups_.find(partition.name);
  if (known != shard_groups_.end()) return *known->second;
  return *shard_groups_.emplace(partition.name, world_->split(partition)).first->second;
}

CommTimes DeviceMesh::times() const {
  CommTimes sum;
  for (const auto& [name, times] : times_by_group()) sum += times;
  return sum;
}

std::map<std::string, CommTimes> DeviceMesh::times_by_group() const {
  std::map<std::string, CommTimes> times = {{"world", world_->times()}};
  for (const auto& [dims, part] : parts_) times[layout_.to_string(dims)] = part->times();
  for (const auto& [name, part] : shard_groups_) times[name] = part->times();
  return times;
}

void DeviceMesh::log_collectives(const configs::CommsLoggerConfig& config) {
  if (log_) return;
  log_ = std::make_unique<CommLog>(config);
  world_ = make_logged_group(std::move(world_), *log_);
  for (auto& [dims, part] : parts_) part = make_logged_group(std::move(part), *log_);
  for (auto& [num_replicas, part] : shard_groups_) part = make_logged_group(std::move(part), *log_);
}

}  // namespace zeroth::comm
