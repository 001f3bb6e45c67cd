#include "comm/hierarchical_group.h"

#include <array>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/call.h"
#include "comm/connect_pair.h"
#include "comm/gloo_group.h"
#include "comm/hierarchical_steps.h"
#include "comm/host_address.h"
#include "comm/host_reports.h"
#include "comm/leg_queue.h"
#include "comm/shared_memory_group.h"

namespace zeroth::comm {
namespace {

// What the groups of a rank have in common.
struct Ground {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  HierarchicalOptions options;
  std::shared_ptr<HostProgress> progress;
  std::shared_ptr<Group> host;  // the ranks of this machine

  const Host& here() const { return host_of(options.hosts, rank); }
  SharedMemoryOptions shared_memory() const {
    return {
        .timeout = options.timeout, .ring = options.ring, .run = options.run, .progress = progress};
  }
};

class HierarchicalPending final : public Pending::Impl {
 public:
  HierarchicalPending(std::shared_ptr<LegQueue> queue, std::shared_ptr<LegQueue::Job> job,
                      std::shared_ptr<CommTimes> times)
      : queue_(std::move(queue)), job_(std::move(job)), times_(std::move(times)) {}

  bool ready() override { return LegQueue::done(*job_); }
  void wait() override {
    queue_->complete(*job_);
    times_->under_way_s += since_issue_.seconds();
  }

 private:
  std::shared_ptr<LegQueue> queue_;
  std::shared_ptr<LegQueue::Job> job_;
  std::shared_ptr<CommTimes> times_;
  Stopwatch since_issue_;
};

class HierarchicalGroup final : public Group {
 public:
  HierarchicalGroup(std::shared_ptr<const Ground> ground, std::shared_ptr<const Legs> legs,
                    bool is_world)
      : ground_(std::move(ground)),
        legs_(std::move(legs)),
        is_world_(is_world),
        queue_(std::make_shared<LegQueue>(ground_->progress)) {}

  int rank() const override {
    const HostLayout& layout = legs_->layout;
    return layout.hosts[static_cast<size_t>(layout.host)][static_cast<size_t>(layout.local)];
  }
  int size() const override { return legs_->layout.num_hosts() * legs_->layout.per_host(); }

  CommTimes times() const override {
    CommTimes times = *times_;
    for (const Group* leg :
         std::array<const Group*, 3>{legs_->in.get(), legs_->across.get(), legs_->out.get()}) {
      const CommTimes of_leg = leg->times();
      times.working_s += of_leg.working_s;
      times.waiting_s += of_leg.waiting_s;
    }
    return times;
  }

  Pending issue(const Collective& collective) override {
    require_fit(collective, size());
    times_->bytes += static_cast<int64_t>(collective.whole().nbytes());
    ++times_->collectives;
    if (collective.whole().numel() == 0) return {};
    LegSteps made = steps_of(collective, legs_);
    times_->bytes_sent += made.bytes_sent;
    auto job = queue_->issue(std::move(made.steps));
    return Pending(std::make_shared<HierarchicalPending>(queue_, std::move(job), times_));
  }

  std::unique_ptr<Group> split(const Partition& partition) override;

 private:
  std::shared_ptr<const Ground> ground_;
  std::shared_ptr<const Legs> legs_;
  bool is_world_;
  std::shared_ptr<LegQueue> queue_;
  std::shared_ptr<CommTimes> times_ = std::make_shared<CommTimes>();
};

// The ranks of this machine in the parts of a group that share its memory, by their numbers on the
// machine. Those of a part that counts each rank as a machine are by themselves.
Partition on_this_machine(const Ground& ground, const Partition& partition) {
  const std::vector<int>& here = ground.here().ranks;
  Partition local{fmt::format("{} on {}", partition.name, ground.here().name), {}};
  std::vector<int> alone;
  for (const std::vector<int>& part : partition.parts) {
    std::vector<int> mine;
    for (int i = 0; i < std::ssize(here); ++i) {
      if (std::binary_search(part.begin(), part.end(), here[static_cast<size_t>(i)]))
        mine.push_back(i);
    }
    if (mine.empty()) continue;
    const int first = here[static_cast<size_t>(mine.front())];
    if (layout_of(part, ground.options.hosts, first).per_host() == std::ssize(mine)) {
      local.parts.push_back(std::move(mine));
    } else {
      for (const int rank : mine) local.parts.push_back({rank});
    }
  }
  return local;
}

// Whether a part with ranks of this machine has others, so that what shares memory here needs two
// groups.
bool crosses(const Ground& ground, const Partition& partition) {
  const std::vector<int>& here = ground.here().ranks;
  return std::any_of(here.begin(), here.end(), [&](int rank) {
    return layout_of(partition.part_of(rank), ground.options.hosts, rank).num_hosts() > 1;
  });
}

std::unique_ptr<Group> in_machine(const Ground& ground, const Partition& local) {
  const std::vector<int>& here = ground.here().ranks;
  Place place = place_in(local, ground.host->rank());
  place.members.ranks.clear();
  for (const int rank : local.part_of(ground.host->rank()))
    place.members.ranks.push_back(here[static_cast<size_t>(rank)]);
  place.members.host = ground.here().name;
  return make_shared_memory_part(*ground.host, local, place, ground.shared_memory());
}

// Two machines exchange over connections of their own what Gloo has no quick way for.
std::shared_ptr<PairLink> link_two(c10d::Store& store, int host, const std::string& name,
                                   const GlooOptions& gloo, const std::string& secret) {
  PairOptions options{gloo.address, name, secret, gloo.timeout};
  if (!gloo.interface.empty()) options.address = address_of_interface(gloo.interface);
  try {
    return std::make_shared<PairLink>(connect_pair(store, host, options), gloo.timeout);
  } catch (const std::exception& cause) {
    throw Error("{}: cannot connect group {} at {}: {}", gloo.members.name_of(host, 2),
                gloo.members.name(), options.address, words_of(cause));
  }
}

std::unique_ptr<C10dGroup> between_machines(const Ground& ground, const Partition& partition,
                                            const HostLayout& layout) {
  const std::vector<int>& part = partition.part_of(ground.rank);
  GlooOptions options{.address = ground.options.address,
                      .timeout = ground.options.timeout,
                      .interface = ground.options.interface,
                      .progress = ground.progress};
  options.members.group = partition.name + " across machines";
  for (const auto& ranks : layout.hosts) {
    const int rank = ranks[static_cast<size_t>(layout.local)];
    options.members.ranks.push_back(part[static_cast<size_t>(rank)]);
  }
  const auto prefix = fmt::format("across/{}/{}", partition.name, options.members.ranks.front());
  const auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, ground.store);
  if (layout.num_hosts() == 2)
    options.link = link_two(*store, layout.host, prefix, options, ground.options.secret);
  return make_gloo_group(store, layout.host, layout.num_hosts(), options);
}

std::unique_ptr<Group> HierarchicalGroup::split(const Partition& partition) {
  ZEROTH_CHECK(is_world_, "a part of the world is split into '{}'", partition.name);
  const HostLayout layout =
      layout_of(partition.part_of(rank()), ground_->options.hosts, ground_->rank);
  const Partition local = on_this_machine(*ground_, partition);
  std::unique_ptr<Group> in = in_machine(*ground_, local), out;
  if (crosses(*ground_, partition)) out = in_machine(*ground_, local);
  if (layout.num_hosts() == 1) return in;
  auto legs = std::make_shared<Legs>();
  legs->layout = layout;
  legs->in = std::move(in);
  legs->out = std::move(out);
  legs->across = between_machines(*ground_, partition, layout);
  return std::make_unique<HierarchicalGroup>(ground_, std::move(legs), /*is_world=*/false);
}

std::shared_ptr<const Ground> ground_on(const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::shared_ptr<SharedSegment>& segment, int rank,
                                        int world_size, const HierarchicalOptions& options) {
  auto ground = std::make_shared<Ground>(Ground{store, rank, options, nullptr, nullptr});
  const Host& here = ground->here();
  const auto local_size = static_cast<int>(here.ranks.size());
  const auto local = std::find(here.ranks.begin(), here.ranks.end(), rank) - here.ranks.begin();
  ground->progress = make_host_progress(
      segment, local_size, rank, world_size,
      std::make_shared<HostReports>(store, rank, options.hosts, options.timeout));
  if (local_size == 1) {
    ground->host = make_solo_group();
    return ground;
  }
  SharedMemoryOptions shared = ground->shared_memory();
  shared.bells = world_size;
  shared.members = {"world on " + here.name, here.ranks, here.name};
  auto table =
      std::make_shared<RankTable>(segment, static_cast<int>(local), local_size, shared.members);
  ground->host = make_shared_memory_group(segment, std::move(table), static_cast<int>(local),
                                          local_size, shared);
  return ground;
}

}  // namespace

size_t hierarchical_segment_bytes(int local_size, int world_size, const RingSize& ring) {
  if (local_size == 1) return RankTable::bytes(1) + RankBells::bytes(world_size);
  return shared_memory_group_bytes(local_size, ring, world_size);
}

std::unique_ptr<Group> make_hierarchical_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               std::shared_ptr<SharedSegment> segment, int rank,
                                               const HierarchicalOptions& options) {
  int world_size = 0;
  for (const Host& host : options.hosts) world_size += static_cast<int>(host.ranks.size());
  Partition world{Members().group, {std::vector<int>(static_cast<size_t>(world_size))}};
  std::iota(world.parts[0].begin(), world.parts[0].end(), 0);
  const auto ground = ground_on(store, segment, rank, world_size, options);
  auto legs = std::make_shared<Legs>();
  legs->layout = layout_of(world.parts[0], options.hosts, rank);
  ZEROTH_CHECK(legs->layout.num_hosts() > 1, "{} ranks on one host", world_size);
  const Partition local = on_this_machine(*ground, world);
  // First steps begin as soon as they are issued: they keep the order of what is done on the host.
  legs->in = legs->layout.per_host() > 1 ? ground->host : make_solo_group();
  legs->out = in_machine(*ground, local);
  legs->across = between_machines(*ground, world, legs->layout);
  return std::make_unique<HierarchicalGroup>(ground, std::move(legs), /*is_world=*/true);
}

}  // namespace zeroth::comm
