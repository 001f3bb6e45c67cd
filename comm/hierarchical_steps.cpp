#include "comm/hierarchical_steps.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/reduce_parts.h"

namespace zeroth::comm {
namespace {

// Below it each rank of a machine sends the whole sum of its machine: one step less.
constexpr int64_t kSmallBytes = 16 << 10;
// A large sum goes in pieces of about this size, so that memory and network are busy at once.
constexpr int64_t kPieceBytes = 2 << 20;

// Builds the steps of one collective.
class Builder {
 public:
  Builder(const Collective& collective, std::shared_ptr<const Legs> legs)
      : call_(collective),
        what_(std::make_shared<const std::string>(collective.what)),
        legs_(std::move(legs)),
        hosts_(legs_->layout.num_hosts()),
        per_host_(legs_->layout.per_host()),
        host_(legs_->layout.host),
        local_(legs_->layout.local) {}

  LegSteps build() {
    switch (call_.kind) {
      case Collective::Kind::kAllReduce:
        all_reduce();
        break;
      case Collective::Kind::kAllGather:
        all_gather();
        break;
      case Collective::Kind::kReduceScatter:
        reduce_scatter();
        break;
      case Collective::Kind::kBroadcast:
        broadcast();
        break;
      case Collective::Kind::kAllToAll:
        all_to_all();
        break;
    }
    return std::move(made_);
  }

 private:
  // The number of the step.
  int add(Leg leg, int after, const Collective& part, std::function<void()> end = {}) {
    const auto begin = [legs = legs_, what = what_, leg, part = Collective(part)]() mutable {
      part.what = *what;
      if (leg == Leg::kAcross) return legs->across->issue(part);
      return (leg == Leg::kIn ? legs->in : legs->out)->issue(part);
    };
    made_.steps.push_back({leg, after, begin, std::move(end)});
    return static_cast<int>(made_.steps.size()) - 1;
  }

  int gather(Leg leg, int after, const torch::Tensor& out, const torch::Tensor& in,
             std::function<void()> end = {}) {
    if (leg == Leg::kAcross && hosts_ == 2) return gather_two(after, out, in, std::move(end));
    if (leg == Leg::kAcross) made_.bytes_sent += bytes(in) * (hosts_ - 1);
    return add(leg, after, {Collective::Kind::kAllGather, out, in, {}}, std::move(end));
  }
  // Between two machines: out = the other's `in`; each may be empty.
  int swap(int after, const torch::Tensor& out, const torch::Tensor& in) {
    made_.bytes_sent += bytes(in);
    const auto begin = [=, legs = legs_, what = what_] {
      return legs->across->swap(out, in, *what);
    };
    made_.steps.push_back({Leg::kAcross, after, begin});
    return static_cast<int>(made_.steps.size()) - 1;
  }
  int gather_two(int after, const torch::Tensor& out, const torch::Tensor& in,
                 std::function<void()> end) {
    const int last = swap(after, row(out, 1 - host_, in.numel()), in);
    made_.steps.back().end = [=, own = row(out, host_, in.numel()), then = std::move(end)] {
      own.copy_(in);
      if (then) then();
    };
    return last;
  }
  // Between two machines: out = the sum of `own` and the other's `sent`, in the order of machines.
  // What comes in has memory only while it is on its way: that stays in the cache.
  int swap_sum(int after, const torch::Tensor& out, const torch::Tensor& own,
               const torch::Tensor& sent) {
    made_.bytes_sent += bytes(sent);
    const auto others = std::make_shared<torch::Tensor>();
    const auto begin = [=, legs = legs_, what = what_] {
      *others = torch::empty_like(sent);
      return legs->across->swap(*others, sent, *what);
    };
    const auto end = [=, op = call_.op, first = host_ == 0] {
      torch::Tensor scratch;
      reduce_parts(op, out, {first ? own : *others, first ? *others : own}, scratch);
      others->reset();
    };
    made_.steps.push_back({Leg::kAcross, after, begin, end});
    return static_cast<int>(made_.steps.size()) - 1;
  }
  int exchange(int after, const torch::Tensor& out, const torch::Tensor& in,
               std::function<void()> end) {
    if (hosts_ == 2) return exchange_two(after, out, in, std::move(end));
    made_.bytes_sent += bytes(in) / hosts_ * (hosts_ - 1);
    return add(Leg::kAcross, after, {Collective::Kind::kAllToAll, out, in, {}}, std::move(end));
  }

  int exchange_two(int after, const torch::Tensor& out, const torch::Tensor& in,
                   std::function<void()> end) {
    const int64_t n = in.numel() / 2;
    const int last = swap(after, row(out, 1 - host_, n), row(in, 1 - host_, n));
    made_.steps.back().end = [=, own = host_, then = std::move(end)] {
      row(out, own, n).copy_(row(in, own, n));
      if (then) then();
    };
    return last;
  }
  // Between machines: `tensor` becomes what it is on the machine `host`.
  int hand_out(const torch::Tensor& tensor, int host) {
    if (hosts_ == 2) {
      const torch::Tensor none = tensor.narrow(0, 0, 0);
      return host_ == host ? swap(-1, none, tensor) : swap(-1, tensor, none);
    }
    if (host_ == host) made_.bytes_sent += bytes(tensor) * (hosts_ - 1);
    return add(Leg::kAcross, -1, broadcast_of(tensor, host));
  }

  static int64_t bytes(const torch::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }
  static torch::Tensor row(const torch::Tensor& rows, int index, int64_t elements) {
    return rows.narrow(0, index * elements, elements);
  }
  // out = the rows reduced in their order.
  static void reduce_rows(Reduce op, const torch::Tensor& out, const torch::Tensor& rows) {
    std::vector<torch::Tensor> parts = rows.split(out.numel());
    torch::Tensor scratch;
    reduce_parts(op, out, parts, scratch);
  }

  // The sum over machines of `part`, which holds the one over this machine.
  int reduce_across(int after, const torch::Tensor& part) {
    const int64_t numel = part.numel(), share = numel / hosts_;
    if (hosts_ == 2 || bytes(part) <= kSmallBytes || share == 0) return reduce_whole(after, part);
    const torch::Tensor main = part.narrow(0, 0, share * hosts_);
    const torch::Tensor rows = torch::empty_like(main), own = row(main, host_, share);
    const int summed = exchange(after, rows, main, [=] { reduce_rows(Reduce::kSum, own, rows); });
    const int last = gather(Leg::kAcross, summed, main, own);
    if (main.numel() == numel) return last;
    return reduce_whole(after, part.narrow(0, main.numel(), numel - main.numel()));
  }
  // Each machine sends all of it to each other: with two of them no more than any other way.
  int reduce_whole(int after, const torch::Tensor& part) {
    if (hosts_ == 2) return swap_sum(after, part, part, part);
    const torch::Tensor rows = torch::empty({hosts_ * part.numel()}, part.options());
    return gather(Leg::kAcross, after, rows, part,
                  [=, op = call_.op] { reduce_rows(op, part, rows); });
  }

  void all_reduce() {
    const torch::Tensor tensor = call_.out.view(-1);
    const int64_t numel = tensor.numel();
    int64_t done = 0;
    if (call_.op == Reduce::kSum && bytes(tensor) > kSmallBytes) {
      const int64_t piece =
          std::max<int64_t>(1, kPieceBytes / tensor.element_size() / per_host_) * per_host_;
      const int64_t main = numel / per_host_ * per_host_;
      for (; done < main; done = std::min(main, done + piece))
        sum_piece(tensor.narrow(0, done, std::min(piece, main - done)));
    }
    if (done == numel) return;
    const torch::Tensor rest = tensor.narrow(0, done, numel - done);
    int after = -1;
    if (per_host_ > 1)
      after = add(Leg::kIn, -1, {Collective::Kind::kAllReduce, rest, rest, {}, call_.op});
    reduce_whole(after, rest);
  }

  void sum_piece(const torch::Tensor& piece) {
    if (per_host_ == 1) {
      reduce_across(-1, piece);
      return;
    }
    const torch::Tensor own = row(piece, local_, piece.numel() / per_host_);
    const int summed = add(Leg::kIn, -1, {Collective::Kind::kReduceScatter, own, piece, {}});
    const int across = reduce_across(summed, own);
    gather(Leg::kOut, across, piece, own);
  }

  // Rows of the ranks, machine by machine, from or into rows by rank.
  std::vector<int64_t> order() const {
    std::vector<int64_t> order;
    for (const auto& ranks : legs_->layout.hosts)
      order.insert(order.end(), ranks.begin(), ranks.end());
    return order;
  }
  torch::Tensor by_host(const torch::Tensor& rows, int64_t elements) const {
    if (legs_->layout.in_order()) return rows.view(-1);
    return rows.view({-1, elements}).index_select(0, torch::tensor(order())).view(-1);
  }
  std::function<void()> into_ranks(const torch::Tensor& out, const torch::Tensor& rows,
                                   int64_t elements) const {
    if (legs_->layout.in_order()) return {};
    return [out, rows, elements, order = torch::tensor(order())] {
      out.view({-1, elements}).index_copy_(0, order, rows.view({-1, elements}));
    };
  }

  void all_gather() {
    const torch::Tensor in = call_.in.view(-1);
    const int64_t n = in.numel();
    const bool in_order = legs_->layout.in_order();
    const torch::Tensor rows =
        in_order ? call_.out.view(-1) : torch::empty_like(call_.out).view(-1);
    if (per_host_ == 1) {
      gather(Leg::kAcross, -1, rows, in, into_ranks(call_.out, rows, n));
      return;
    }
    gather(Leg::kOut, -1, row(rows, host_, per_host_ * n), in);
    const int64_t piece =
        std::max<int64_t>(1, kPieceBytes / in.element_size() / (hosts_ * per_host_));
    for (int64_t done = 0; done < n; done += piece)
      gather_piece(rows.view({hosts_, per_host_, n}).narrow(2, done, std::min(piece, n - done)),
                   in.narrow(0, done, std::min(piece, n - done)));
    made_.steps.back().end = into_ranks(call_.out, rows, n);
  }

  // The rows of other machines, of which each rank hands on those of its number. `rows`: [machine,
  // number, elements], each row contiguous.
  void gather_piece(const torch::Tensor& rows, const torch::Tensor& in) {
    if (hosts_ == 2) {
      const torch::Tensor of_host = rows[1 - host_];
      const int across = swap(-1, of_host[local_], in);
      for (int local = 0; local < per_host_; ++local)
        add(Leg::kOut, across, broadcast_of(of_host[local], local));
      return;
    }
    const torch::Tensor same = torch::empty({hosts_ * in.numel()}, in.options());
    const int across =
        gather(Leg::kAcross, -1, same, in, [=, hosts = hosts_, own = host_, local = local_] {
          for (int host = 0; host < hosts; ++host) {
            if (host != own) rows[host][local].copy_(row(same, host, in.numel()));
          }
        });
    for (int next = 1; next < hosts_; ++next) {
      const torch::Tensor of_host = rows[(host_ + next) % hosts_];
      for (int local = 0; local < per_host_; ++local)
        add(Leg::kOut, across, broadcast_of(of_host[local], local));
    }
  }

  void reduce_scatter() {
    const torch::Tensor out = call_.out.view(-1);
    const int64_t n = out.numel();
    const torch::Tensor in = by_host(call_.in, n);
    torch::Tensor own = in;  // the sums over this machine, for each machine
    int after = -1;
    if (per_host_ > 1) {
      own = torch::empty({hosts_ * n}, out.options());
      for (int host = 0; host < hosts_; ++host) {
        after = add(Leg::kIn, -1,
                    {Collective::Kind::kReduceScatter,
                     row(own, host, n),
                     row(in, host, per_host_ * n),
                     {}});
      }
    }
    if (hosts_ == 2) {
      swap_sum(after, out, row(own, host_, n), row(own, 1 - host_, n));
      return;
    }
    const torch::Tensor rows = torch::empty_like(own);
    exchange(after, rows, own, [=] { reduce_rows(Reduce::kSum, out, rows); });
  }

  void broadcast() {
    const torch::Tensor tensor = call_.out.view(-1);
    for (int host = 0; host < hosts_; ++host) {
      const auto& ranks = legs_->layout.hosts[static_cast<size_t>(host)];
      const auto found = std::find(ranks.begin(), ranks.end(), call_.root);
      if (found != ranks.end())
        broadcast_from(host, static_cast<int>(found - ranks.begin()), tensor);
    }
  }

  static Collective broadcast_of(const torch::Tensor& tensor, int root) {
    return {Collective::Kind::kBroadcast, tensor, tensor, {}, Reduce::kSum, root};
  }

  void broadcast_from(int host, int local, const torch::Tensor& whole) {
    const int64_t piece = kPieceBytes / whole.element_size();
    for (int64_t done = 0; done < whole.numel(); done += piece) {
      const torch::Tensor tensor = whole.narrow(0, done, std::min(piece, whole.numel() - done));
      int after = -1;
      if (local_ == local) {
        const int across = hand_out(tensor, host);
        if (host_ != host) after = across;
      }
      if (per_host_ > 1) add(Leg::kOut, after, broadcast_of(tensor, local));
    }
  }

  // First to the rank of this machine that has the number of the one it is for on its own.
  void all_to_all() {
    const int64_t n = call_.in.numel() / (hosts_ * per_host_);
    const torch::Tensor in = by_host(call_.in, n);
    const torch::Tensor rows =
        legs_->layout.in_order() ? call_.out.view(-1) : torch::empty_like(call_.out).view(-1);
    const auto last = into_ranks(call_.out, rows, n);
    if (per_host_ == 1) {
      exchange(-1, rows, in, last);
      return;
    }
    const torch::Tensor by_local = in.view({hosts_, per_host_, n}).transpose(0, 1).contiguous();
    const torch::Tensor from_mates = torch::empty_like(by_local);  // [from, machine, n]
    const torch::Tensor to_hosts = torch::empty_like(in);
    const int within =
        add(Leg::kIn, -1, {Collective::Kind::kAllToAll, from_mates.view(-1), by_local.view(-1), {}},
            [=, this_hosts = hosts_, each = per_host_] {
              to_hosts.view({this_hosts, each, n})
                  .copy_(from_mates.view({each, this_hosts, n}).transpose(0, 1));
            });
    exchange(within, rows, to_hosts, last);
  }

  Collective call_;
  std::shared_ptr<const std::string> what_;
  std::shared_ptr<const Legs> legs_;
  int hosts_, per_host_, host_, local_;
  LegSteps made_;
};

}  // namespace

LegSteps steps_of(const Collective& collective, const std::shared_ptr<const Legs>& legs) {
  return Builder(collective, legs).build();
}

}  // namespace zeroth::comm
