#include "comm/groups/hierarchical_group.h"

#include <array>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/timer.h"
#include "comm/bootstrap/host_address.h"
#include "comm/collective_info.h"
#include "comm/groups/gloo_group.h"
#include "comm/groups/pair_link.h"
#include "comm/groups/peer_reports.h"
#include "comm/groups/shared_memory_group.h"
#include "comm/groups/stage_plan.h"
#include "comm/groups/stage_queue.h"

namespace zeroth::comm {
namespace {

// State that the groups of a rank share.
struct NodeContext {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  HierarchicalOptions options;
  std::shared_ptr<ProgressEngine> progress;
  std::shared_ptr<Group> node;  // the ranks of this node

  const Node& here() const { return node_of(options.nodes, rank); }
  SharedMemoryOptions shared_memory() const {
    return {
        .timeout = options.timeout, .ring = options.ring, .run = options.run, .progress = progress};
  }
};

class HierarchicalGroup final : public Group {
 public:
  HierarchicalGroup(std::shared_ptr<const NodeContext> context,
                    std::shared_ptr<const StageGroups> stages, bool is_world)
      : context_(std::move(context)),
        stages_(std::move(stages)),
        is_world_(is_world),
        queue_(std::make_shared<StageQueue>(context_->progress)) {}

  int rank() const override {
    const NodeLayout& layout = stages_->layout;
    return layout.nodes[static_cast<size_t>(layout.node)][static_cast<size_t>(layout.local)];
  }
  int size() const override {
    return stages_->layout.num_nodes() * stages_->layout.ranks_per_node();
  }

  CommTimes times() const override {
    CommTimes times = *times_;
    for (const Group* stage : std::array<const Group*, 3>{
             stages_->intra_first.get(), stages_->inter_node.get(), stages_->intra_last.get()}) {
      const CommTimes stage_times = stage->times();
      times.working_s += stage_times.working_s;
      times.waiting_s += stage_times.waiting_s;
    }
    return times;
  }

  CollectiveHandle issue(const Collective& collective) override {
    check_tensor_shapes(collective, size());
    times_->bytes += static_cast<int64_t>(collective.whole().nbytes());
    ++times_->collectives;
    if (collective.whole().numel() == 0) return {};
    StagePlan plan = plan_stages(collective, stages_);
    times_->bytes_sent += plan.bytes_sent;
    const auto operation = queue_->issue(std::move(plan.steps));
    return make_handle(
        [queue = queue_, operation, times = times_, since_issue = Timer()] {
          queue->complete(*operation);
          times->in_flight_s += since_issue.seconds();
        },
        [operation] { return StageQueue::done(*operation); });
  }

  std::unique_ptr<Group> split(const Partition& partition) override;

 private:
  std::shared_ptr<const NodeContext> context_;
  std::shared_ptr<const StageGroups> stages_;
  bool is_world_;
  std::shared_ptr<StageQueue> queue_;
  std::shared_ptr<CommTimes> times_ = std::make_shared<CommTimes>();
};

// Returns the ranks of this node, by their local indices, in the parts of a group that share its
// memory. Ranks of a part that counts each rank as a node are parts of one rank.
Partition local_partition(const NodeContext& context, const Partition& partition) {
  const std::vector<int>& here = context.here().ranks;
  Partition local{fmt::format("{} on {}", partition.name, context.here().name), {}};
  std::vector<int> alone;
  for (const std::vector<int>& part : partition.parts) {
    std::vector<int> mine;
    for (int i = 0; i < std::ssize(here); ++i) {
      if (std::binary_search(part.begin(), part.end(), here[static_cast<size_t>(i)]))
        mine.push_back(i);
    }
    if (mine.empty()) continue;
    const int first = here[static_cast<size_t>(mine.front())];
    if (node_layout(part, context.options.nodes, first).ranks_per_node() == std::ssize(mine)) {
      local.parts.push_back(std::move(mine));
    } else {
      for (const int rank : mine) local.parts.push_back({rank});
    }
  }
  return local;
}

// Returns whether a part with ranks of this node has ranks on others, so that shared memory here
// needs two groups.
bool spans_nodes(const NodeContext& context, const Partition& partition) {
  const std::vector<int>& here = context.here().ranks;
  return std::any_of(here.begin(), here.end(), [&](int rank) {
    return node_layout(partition.part_of(rank), context.options.nodes, rank).num_nodes() > 1;
  });
}

std::unique_ptr<Group> intra_node_group(const NodeContext& context, const Partition& local) {
  const std::vector<int>& here = context.here().ranks;
  GroupMember member = group_member(local, context.node->rank());
  member.members.ranks.clear();
  for (const int rank : local.part_of(context.node->rank()))
    member.members.ranks.push_back(here[static_cast<size_t>(rank)]);
  member.members.node = context.here().name;
  return make_shared_memory_part(*context.node, local, member, context.shared_memory());
}

// Connects two nodes by dedicated connections, for the exchanges that Gloo has no fast way for.
std::shared_ptr<PairLink> connect_nodes(c10d::Store& store, int node, const std::string& name,
                                        const GlooOptions& gloo, const std::string& secret) {
  PairOptions options{gloo.address, name, secret, gloo.timeout};
  if (!gloo.interface.empty()) options.address = address_of_interface(gloo.interface);
  try {
    return std::make_shared<PairLink>(connect_pair(store, node, options), gloo.timeout);
  } catch (const std::exception& cause) {
    throw Error("{}: cannot connect group {} at {}: {}", gloo.group.members.rank_name(node, 2),
                gloo.group.members.name(), options.address, error_message(cause));
  }
}

std::unique_ptr<C10dGroup> inter_node_group(const NodeContext& context, const Partition& partition,
                                            const NodeLayout& layout) {
  const std::vector<int>& part = partition.part_of(context.rank);
  GlooOptions options{.address = context.options.address,
                      .timeout = context.options.timeout,
                      .interface = context.options.interface,
                      .group = {.progress = context.progress}};
  Members& members = options.group.members;
  members.group = partition.name + " across machines";
  for (const auto& ranks : layout.nodes) {
    const int rank = ranks[static_cast<size_t>(layout.local)];
    members.ranks.push_back(part[static_cast<size_t>(rank)]);
  }
  const auto prefix = fmt::format("across/{}/{}", partition.name, members.ranks.front());
  const auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, context.store);
  if (layout.num_nodes() == 2)
    options.group.link =
        connect_nodes(*store, layout.node, prefix, options, context.options.secret);
  return make_gloo_group(store, layout.node, layout.num_nodes(), options);
}

std::unique_ptr<Group> HierarchicalGroup::split(const Partition& partition) {
  ZEROTH_CHECK(is_world_, "a part of the world is split into '{}'", partition.name);
  const NodeLayout layout =
      node_layout(partition.part_of(rank()), context_->options.nodes, context_->rank);
  const Partition local = local_partition(*context_, partition);
  std::unique_ptr<Group> in = intra_node_group(*context_, local), out;
  if (spans_nodes(*context_, partition)) out = intra_node_group(*context_, local);
  if (layout.num_nodes() == 1) return in;
  auto stages = std::make_shared<StageGroups>();
  stages->layout = layout;
  stages->intra_first = std::move(in);
  stages->intra_last = std::move(out);
  stages->inter_node = inter_node_group(*context_, partition, layout);
  return std::make_unique<HierarchicalGroup>(context_, std::move(stages), /*is_world=*/false);
}

std::shared_ptr<const NodeContext> make_context(const c10::intrusive_ptr<c10d::Store>& store,
                                                const std::shared_ptr<SharedSegment>& segment,
                                                int rank, int world_size,
                                                const HierarchicalOptions& options) {
  auto context = std::make_shared<NodeContext>(NodeContext{store, rank, options, nullptr, nullptr});
  const Node& here = context->here();
  const auto local_size = static_cast<int>(here.ranks.size());
  const int local = local_rank(here, rank);
  context->progress = std::make_shared<ProgressEngine>(
      Doorbells(segment, RankTable::bytes(local_size), rank, world_size),
      std::make_shared<PeerReports>(store, rank, options.nodes, options.timeout));
  if (local_size == 1) {
    context->node = make_solo_group();
    return context;
  }
  SharedMemoryOptions shared = context->shared_memory();
  shared.num_doorbells = world_size;
  shared.members = {"world on " + here.name, here.ranks, here.name};
  auto table = std::make_shared<RankTable>(segment, local, local_size, shared.members);
  context->node = make_shared_memory_group(segment, std::move(table), local, local_size, shared);
  return context;
}

}  // namespace

size_t hierarchical_segment_bytes(int local_size, int world_size, const RingSize& ring) {
  if (local_size == 1) return RankTable::bytes(1) + Doorbells::bytes(world_size);
  return shared_memory_group_bytes(local_size, ring, world_size);
}

std::unique_ptr<Group> make_hierarchical_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               std::shared_ptr<SharedSegment> segment, int rank,
                                               const HierarchicalOptions& options) {
  const int world_size = count_ranks(options.nodes);
  const Partition world = world_partition(world_size);
  const auto context = make_context(store, segment, rank, world_size, options);
  auto stages = std::make_shared<StageGroups>();
  stages->layout = node_layout(world.parts[0], options.nodes, rank);
  ZEROTH_CHECK(stages->layout.num_nodes() > 1, "{} ranks on one host", world_size);
  const Partition local = local_partition(*context, world);
  // First steps begin as soon as they are issued, so they keep the order of work on the CPU.
  stages->intra_first = stages->layout.ranks_per_node() > 1 ? context->node : make_solo_group();
  stages->intra_last = intra_node_group(*context, local);
  stages->inter_node = inter_node_group(*context, world, stages->layout);
  return std::make_unique<HierarchicalGroup>(context, std::move(stages), /*is_world=*/true);
}

}  // namespace zeroth::comm
