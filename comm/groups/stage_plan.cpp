#include "comm/groups/stage_plan.h"

#include <algorithm>
#include <utility>

#include "comm/groups/reduce_parts.h"

namespace zeroth::comm {
namespace {

// Up to this size each rank of a node sends the whole sum of its node: one step less.
constexpr int64_t kSmallBytes = 16 << 10;
// A larger sum is cut into chunks of about this size, so that memory and network are busy at once.
constexpr int64_t kChunkBytes = 2 << 20;

// A StagePlanBuilder builds the steps of one collective.
class StagePlanBuilder {
 public:
  StagePlanBuilder(const Collective& collective, std::shared_ptr<const StageGroups> stages)
      : collective_(collective),
        what_(std::make_shared<const std::string>(collective.what)),
        stages_(std::move(stages)),
        num_nodes_(stages_->layout.num_nodes()),
        ranks_per_node_(stages_->layout.ranks_per_node()),
        node_(stages_->layout.node),
        local_(stages_->layout.local) {}

  StagePlan build() {
    switch (collective_.kind) {
      case Collective::OpType::kAllReduce:
        all_reduce();
        break;
      case Collective::OpType::kAllGather:
        all_gather();
        break;
      case Collective::OpType::kReduceScatter:
        reduce_scatter();
        break;
      case Collective::OpType::kBroadcast:
        broadcast();
        break;
      case Collective::OpType::kAllToAll:
        all_to_all();
        break;
    }
    return std::move(plan_);
  }

 private:
  // Both add a step and return its index.
  int add(StageStep step) {
    plan_.steps.push_back(std::move(step));
    return static_cast<int>(plan_.steps.size()) - 1;
  }
  int add(HierarchicalStage stage, int after, const Collective& part,
          std::function<void()> end = {}) {
    const auto begin = [stages = stages_, what = what_, stage, part = Collective(part)]() mutable {
      part.what = *what;
      if (stage == HierarchicalStage::kInterNode) return stages->inter_node->issue(part);
      return (stage == HierarchicalStage::kIntraFirst ? stages->intra_first : stages->intra_last)
          ->issue(part);
    };
    return add({stage, after, begin, std::move(end)});
  }

  int gather(HierarchicalStage stage, int after, const torch::Tensor& out, const torch::Tensor& in,
             std::function<void()> end = {}) {
    if (stage == HierarchicalStage::kInterNode) {
      if (num_nodes_ == 2) return send_recv_rows(after, out, in, in, std::move(end));
      plan_.bytes_sent += bytes(in) * (num_nodes_ - 1);
    }
    return add(stage, after, {Collective::OpType::kAllGather, out, in, {}}, std::move(end));
  }
  // Adds an exchange between two nodes: out = the other's `in`; each may be empty.
  int send_recv(int after, const torch::Tensor& out, const torch::Tensor& in) {
    plan_.bytes_sent += bytes(in);
    const auto begin = [=, stages = stages_, what = what_] {
      return stages->inter_node->send_recv(out, in, *what);
    };
    return add({HierarchicalStage::kInterNode, after, begin});
  }
  // Adds an exchange between two nodes: this node's row of `out` = own, the other row = the other
  // node's `sent`.
  int send_recv_rows(int after, const torch::Tensor& out, const torch::Tensor& own,
                     const torch::Tensor& sent, std::function<void()> end) {
    const int last = send_recv(after, row(out, 1 - node_, own.numel()), sent);
    plan_.steps.back().end = [=, to = row(out, node_, own.numel()), then = std::move(end)] {
      to.copy_(own);
      if (then) then();
    };
    return last;
  }
  // Adds an exchange between two nodes: out = the sum of `own` and the other's `sent`, in node
  // order. Received data has memory only while it is in flight, so it stays in the cache.
  int send_recv_sum(int after, const torch::Tensor& out, const torch::Tensor& own,
                    const torch::Tensor& sent) {
    plan_.bytes_sent += bytes(sent);
    const auto others = std::make_shared<torch::Tensor>();
    const auto begin = [=, stages = stages_, what = what_] {
      *others = torch::empty_like(sent);
      return stages->inter_node->send_recv(*others, sent, *what);
    };
    const auto end = [=, op = collective_.op, first = node_ == 0] {
      torch::Tensor scratch;
      reduce_parts(op, out, {first ? own : *others, first ? *others : own}, scratch);
      others->reset();
    };
    return add({HierarchicalStage::kInterNode, after, begin, end});
  }
  int inter_node_all_to_all(int after, const torch::Tensor& out, const torch::Tensor& in,
                            std::function<void()> end) {
    const int64_t n = in.numel() / num_nodes_;
    if (num_nodes_ == 2)
      return send_recv_rows(after, out, row(in, node_, n), row(in, 1 - node_, n), std::move(end));
    plan_.bytes_sent += bytes(in) / num_nodes_ * (num_nodes_ - 1);
    return add(HierarchicalStage::kInterNode, after, {Collective::OpType::kAllToAll, out, in, {}},
               std::move(end));
  }

  // Adds a broadcast between nodes: `tensor` becomes what it is on node `node`.
  int inter_node_broadcast(const torch::Tensor& tensor, int node) {
    if (num_nodes_ == 2) {
      const torch::Tensor none = tensor.narrow(0, 0, 0);
      return node_ == node ? send_recv(-1, none, tensor) : send_recv(-1, tensor, none);
    }
    if (node_ == node) plan_.bytes_sent += bytes(tensor) * (num_nodes_ - 1);
    return add(HierarchicalStage::kInterNode, -1, broadcast_of(tensor, node));
  }

  static int64_t bytes(const torch::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }
  static torch::Tensor row(const torch::Tensor& rows, int index, int64_t elements) {
    return rows.narrow(0, index * elements, elements);
  }
  // Sets out to the rows reduced in their order.
  static void reduce_rows(ReduceOp op, const torch::Tensor& out, const torch::Tensor& rows) {
    std::vector<torch::Tensor> parts = rows.split(out.numel());
    torch::Tensor scratch;
    reduce_parts(op, out, parts, scratch);
  }

  // Adds the sum over nodes of `part`, which holds the sum over this node.
  int inter_node_reduce(int after, const torch::Tensor& part) {
    const int64_t numel = part.numel(), share = numel / num_nodes_;
    if (num_nodes_ == 2 || bytes(part) <= kSmallBytes || share == 0)
      return inter_node_reduce_full(after, part);
    const torch::Tensor main = part.narrow(0, 0, share * num_nodes_);
    const torch::Tensor rows = torch::empty_like(main), own = row(main, node_, share);
    const int summed =
        inter_node_all_to_all(after, rows, main, [=] { reduce_rows(ReduceOp::kSum, own, rows); });
    const int last = gather(HierarchicalStage::kInterNode, summed, main, own);
    if (main.numel() == numel) return last;
    return inter_node_reduce_full(after, part.narrow(0, main.numel(), numel - main.numel()));
  }
  // Adds a sum in which each node sends all of it to each other: with two nodes no other way sends
  // less.
  int inter_node_reduce_full(int after, const torch::Tensor& part) {
    if (num_nodes_ == 2) return send_recv_sum(after, part, part, part);
    const torch::Tensor rows = torch::empty({num_nodes_ * part.numel()}, part.options());
    return gather(HierarchicalStage::kInterNode, after, rows, part,
                  [=, op = collective_.op] { reduce_rows(op, part, rows); });
  }

  void all_reduce() {
    const torch::Tensor tensor = collective_.out.view(-1);
    const int64_t numel = tensor.numel();
    int64_t done = 0;
    if (collective_.op == ReduceOp::kSum && bytes(tensor) > kSmallBytes) {
      const int64_t chunk =
          std::max<int64_t>(1, kChunkBytes / tensor.element_size() / ranks_per_node_) *
          ranks_per_node_;
      const int64_t main = numel / ranks_per_node_ * ranks_per_node_;
      for (; done < main; done = std::min(main, done + chunk))
        reduce_chunk(tensor.narrow(0, done, std::min(chunk, main - done)));
    }
    if (done == numel) return;
    const torch::Tensor remainder = tensor.narrow(0, done, numel - done);
    int after = -1;
    if (ranks_per_node_ > 1)
      after = add(HierarchicalStage::kIntraFirst, -1,
                  {Collective::OpType::kAllReduce, remainder, remainder, {}, collective_.op});
    inter_node_reduce_full(after, remainder);
  }

  void reduce_chunk(const torch::Tensor& chunk) {
    if (ranks_per_node_ == 1) {
      inter_node_reduce(-1, chunk);
      return;
    }
    const torch::Tensor own = row(chunk, local_, chunk.numel() / ranks_per_node_);
    const int summed = add(HierarchicalStage::kIntraFirst, -1,
                           {Collective::OpType::kReduceScatter, own, chunk, {}});
    const int across = inter_node_reduce(summed, own);
    gather(HierarchicalStage::kIntraLast, across, chunk, own);
  }

  // Returns the ranks node by node, to order rows from or into rank order.
  std::vector<int64_t> rank_order() const {
    std::vector<int64_t> rank_order;
    for (const auto& ranks : stages_->layout.nodes)
      rank_order.insert(rank_order.end(), ranks.begin(), ranks.end());
    return rank_order;
  }
  torch::Tensor order_by_node(const torch::Tensor& rows, int64_t elements) const {
    if (stages_->layout.in_order()) return rows.view(-1);
    return rows.view({-1, elements}).index_select(0, torch::tensor(rank_order())).view(-1);
  }
  // Returns memory for rows node by node: `out` itself if that is rank order.
  torch::Tensor rows_by_node(const torch::Tensor& out) const {
    return stages_->layout.in_order() ? out.view(-1) : torch::empty_like(out).view(-1);
  }
  std::function<void()> into_ranks(const torch::Tensor& out, const torch::Tensor& rows,
                                   int64_t elements) const {
    if (stages_->layout.in_order()) return {};
    return [out, rows, elements, rank_order = torch::tensor(rank_order())] {
      out.view({-1, elements}).index_copy_(0, rank_order, rows.view({-1, elements}));
    };
  }

  void all_gather() {
    const torch::Tensor in = collective_.in.view(-1);
    const int64_t n = in.numel();
    const torch::Tensor rows = rows_by_node(collective_.out);
    if (ranks_per_node_ == 1) {
      gather(HierarchicalStage::kInterNode, -1, rows, in, into_ranks(collective_.out, rows, n));
      return;
    }
    gather(HierarchicalStage::kIntraLast, -1, row(rows, node_, ranks_per_node_ * n), in);
    const int64_t chunk =
        std::max<int64_t>(1, kChunkBytes / in.element_size() / (num_nodes_ * ranks_per_node_));
    for (int64_t done = 0; done < n; done += chunk)
      gather_chunk(
          rows.view({num_nodes_, ranks_per_node_, n}).narrow(2, done, std::min(chunk, n - done)),
          in.narrow(0, done, std::min(chunk, n - done)));
    plan_.steps.back().end = into_ranks(collective_.out, rows, n);
  }

  // Adds broadcasts of the rows of another node, one from each rank of this node.
  void broadcast_rows(int after, const torch::Tensor& of_node) {
    for (int local = 0; local < ranks_per_node_; ++local)
      add(HierarchicalStage::kIntraLast, after, broadcast_of(of_node[local], local));
  }

  // Gathers the rows of other nodes, of which each rank forwards those of its local index. `rows`:
  // [node, local index, elements], each row contiguous.
  void gather_chunk(const torch::Tensor& rows, const torch::Tensor& in) {
    if (num_nodes_ == 2) {
      const torch::Tensor of_node = rows[1 - node_];
      broadcast_rows(send_recv(-1, of_node[local_], in), of_node);
      return;
    }
    const torch::Tensor same = torch::empty({num_nodes_ * in.numel()}, in.options());
    const int across = gather(HierarchicalStage::kInterNode, -1, same, in,
                              [=, nodes = num_nodes_, own = node_, local = local_] {
                                for (int node = 0; node < nodes; ++node) {
                                  if (node != own)
                                    rows[node][local].copy_(row(same, node, in.numel()));
                                }
                              });
    for (int next = 1; next < num_nodes_; ++next)
      broadcast_rows(across, rows[(node_ + next) % num_nodes_]);
  }

  void reduce_scatter() {
    const torch::Tensor out = collective_.out.view(-1);
    const int64_t n = out.numel();
    const torch::Tensor in = order_by_node(collective_.in, n);
    torch::Tensor own = in;  // the sums over this node, for each node
    int after = -1;
    if (ranks_per_node_ > 1) {
      own = torch::empty({num_nodes_ * n}, out.options());
      for (int node = 0; node < num_nodes_; ++node) {
        after = add(HierarchicalStage::kIntraFirst, -1,
                    {Collective::OpType::kReduceScatter,
                     row(own, node, n),
                     row(in, node, ranks_per_node_ * n),
                     {}});
      }
    }
    if (num_nodes_ == 2) {
      send_recv_sum(after, out, row(own, node_, n), row(own, 1 - node_, n));
      return;
    }
    const torch::Tensor rows = torch::empty_like(own);
    inter_node_all_to_all(after, rows, own, [=] { reduce_rows(ReduceOp::kSum, out, rows); });
  }

  void broadcast() {
    const torch::Tensor tensor = collective_.out.view(-1);
    for (int node = 0; node < num_nodes_; ++node) {
      const auto& ranks = stages_->layout.nodes[static_cast<size_t>(node)];
      const auto found = std::find(ranks.begin(), ranks.end(), collective_.root);
      if (found != ranks.end())
        broadcast_from(node, static_cast<int>(found - ranks.begin()), tensor);
    }
  }

  static Collective broadcast_of(const torch::Tensor& tensor, int root) {
    return {Collective::OpType::kBroadcast, tensor, tensor, {}, ReduceOp::kSum, root};
  }

  void broadcast_from(int node, int local, const torch::Tensor& whole) {
    const int64_t chunk = kChunkBytes / whole.element_size();
    for (int64_t done = 0; done < whole.numel(); done += chunk) {
      const torch::Tensor tensor = whole.narrow(0, done, std::min(chunk, whole.numel() - done));
      int after = -1;
      if (local_ == local) {
        const int across = inter_node_broadcast(tensor, node);
        if (node_ != node) after = across;
      }
      if (ranks_per_node_ > 1)
        add(HierarchicalStage::kIntraLast, after, broadcast_of(tensor, local));
    }
  }

  // Sends rows first to the rank of this node that has the local index of their target rank.
  void all_to_all() {
    const int64_t n = collective_.in.numel() / (num_nodes_ * ranks_per_node_);
    const torch::Tensor in = order_by_node(collective_.in, n);
    const torch::Tensor rows = rows_by_node(collective_.out);
    const auto last = into_ranks(collective_.out, rows, n);
    if (ranks_per_node_ == 1) {
      inter_node_all_to_all(-1, rows, in, last);
      return;
    }
    const torch::Tensor by_local =
        in.view({num_nodes_, ranks_per_node_, n}).transpose(0, 1).contiguous();
    const torch::Tensor from_mates = torch::empty_like(by_local);  // [from, node, n]
    const torch::Tensor to_nodes = torch::empty_like(in);
    const int within =
        add(HierarchicalStage::kIntraFirst, -1,
            {Collective::OpType::kAllToAll, from_mates.view(-1), by_local.view(-1), {}},
            [=, num_nodes = num_nodes_, each = ranks_per_node_] {
              to_nodes.view({num_nodes, each, n})
                  .copy_(from_mates.view({each, num_nodes, n}).transpose(0, 1));
            });
    inter_node_all_to_all(within, rows, to_nodes, last);
  }

  Collective collective_;
  std::shared_ptr<const std::string> what_;
  std::shared_ptr<const StageGroups> stages_;
  int num_nodes_, ranks_per_node_, node_, local_;
  StagePlan plan_;
};

}  // namespace

StagePlan plan_stages(const Collective& collective,
                      const std::shared_ptr<const StageGroups>& stages) {
  return StagePlanBuilder(collective, stages).build();
}

}  // namespace zeroth::comm
