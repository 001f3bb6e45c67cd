#include "comm/mesh.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "comm/comm_log.h"
#include "comm/find_hosts.h"

namespace zeroth::comm {
namespace {

size_t least_ranks(const Hosts& hosts) {
  return std::min_element(
             hosts.begin(), hosts.end(),
             [](const Host& a, const Host& b) { return a.ranks.size() < b.ranks.size(); })
      ->ranks.size();
}

}  // namespace

Mesh::Mesh(torch::Device device, std::unique_ptr<Group> world)
    : Mesh(device, Meeting{}, std::move(world)) {}

Mesh::Mesh(torch::Device device, Meeting meeting, std::unique_ptr<Group> world)
    : device_(device),
      meeting_(std::make_unique<Meeting>(std::move(meeting))),
      world_(std::move(world)),
      grid_(GridShape::data(world_->size())) {
  if (!meeting_->hosts.empty()) return;
  std::vector<int> all(static_cast<size_t>(world_->size()));
  std::iota(all.begin(), all.end(), 0);
  meeting_->hosts = {{this_machine(std::nullopt).name, std::move(all)}};
}

Mesh::~Mesh() = default;

void Mesh::arrange(const GridShape& shape) {
  if (shape == grid_.shape()) return;
  ZEROTH_CHECK(parts_.empty() && sharing_.empty(), "{} groups were asked for already",
               parts_.size() + sharing_.size());
  if (shape.ranks() != world_size())
    throw Error("a grid of {} has {} ranks, the world {}", shape.str(), shape.ranks(),
                world_size());
  grid_ = RankGrid(shape);
  for (const std::vector<int>& part : grid_.along({Axis::kTensor}).parts) {
    const Hosts& hosts = meeting_->hosts;
    if (host_of(hosts, part.front()).ranks == host_of(hosts, part.back()).ranks) continue;
    meeting_->notes.push_back(fmt::format(
        "ranks {} and {} share every layer and are on different machines ({}, {}): each layer "
        "waits for the network; an autotp_size of at most {} keeps such ranks on one machine",
        part.front(), part.back(), host_of(hosts, part.front()).name,
        host_of(hosts, part.back()).name, least_ranks(hosts)));
    break;
  }
}

Group& Mesh::group(Axes axes) const {
  const int ranks = grid_.shape().ranks_along(axes);
  if (ranks == world_size()) return *world_;
  const auto known = parts_.find(axes);
  if (known != parts_.end()) return *known->second;
  auto part = ranks == 1 ? make_solo_group() : world_->split(grid_.along(axes));
  return *parts_.emplace(axes, std::move(part)).first->second;
}

Group& Mesh::sharing(int copies) const {
  if (copies == 1) return data();
  if (copies == grid_.shape()[Axis::kTensor]) return group({Axis::kData, Axis::kTensor});
  return part(grid_.sharing(copies));
}

Group& Mesh::sharing_near(int copies, int data_ranks) const {
  return part(grid_.sharing_near(copies, data_ranks));
}

Group& Mesh::sharing_across(int copies, int data_ranks) const {
  return part(grid_.sharing_across(copies, data_ranks));
}

Group& Mesh::part(const Partition& partition) const {
  const auto known = sharing_.find(partition.name);
  if (known != sharing_.end()) return *known->second;
  return *sharing_.emplace(partition.name, world_->split(partition)).first->second;
}

CommTimes Mesh::times() const {
  CommTimes sum;
  for (const auto& [name, times] : times_by_group()) sum += times;
  return sum;
}

std::map<std::string, CommTimes> Mesh::times_by_group() const {
  std::map<std::string, CommTimes> times = {{"world", world_->times()}};
  for (const auto& [axes, part] : parts_) times[grid_.name_of(axes)] = part->times();
  for (const auto& [name, part] : sharing_) times[name] = part->times();
  return times;
}

void Mesh::log_collectives(const configs::CommsLoggerConfig& config) {
  if (log_) return;
  log_ = std::make_unique<CommLog>(config);
  world_ = make_logged_group(std::move(world_), *log_);
  for (auto& [axes, part] : parts_) part = make_logged_group(std::move(part), *log_);
  for (auto& [copies, part] : sharing_) part = make_logged_group(std::move(part), *log_);
}

}  // namespace zeroth::comm
