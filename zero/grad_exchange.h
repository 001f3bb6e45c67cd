// A gradient's way over the ranks that hold it: in pieces of at most a bucket, one or two gradients
// under way.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "comm/group.h"
#include "zero/buffer_pool.h"
#include "zero/flat_layout.h"
#include "zero/grad_landing.h"
#include "zero/grad_reducer.h"
#include "zero/in_flight.h"

namespace zeroth::zero {

class GradExchange {
 public:
  // Keeps a reference to `pool`.
  GradExchange(const GradReducerOptions& options, BufferPool& pool);

  struct Transfer {
    comm::Group& holders;
    torch::Tensor whole;        // [numel], this rank's addend; written to. May lie in any dtype
    Range range;                // the elements of the sum that this rank wants: all, or its shard
    torch::Tensor target = {};  // [range.size()], where they go; may be that part of `whole`
    torch::Tensor host = {};    // [range.size()], where they go by options.landing; either, or both
    torch::Tensor squared = {};  // fp64 scalar on the device, grows by their squares; or undefined
    bool add = false;            // to what target or host holds
    bool give_back = false;      // `whole` to the pool in the end
    std::string what = {};       // for messages
  };
  // Starts to sum `whole` over the holders. Transfers end in the order of their start, some before
  // this returns; the target is theirs until then. Collective.
  void start(const Transfer& transfer);
  // Waits until all have ended, those of a step that was interrupted too.
  void drain();

 private:
  struct Piece {
    comm::Pending pending;
    torch::Tensor sent;      // crosses the group, in the wire's dtype
    torch::Tensor received;  // what target shall hold; undefined where this rank wants nothing
    torch::Tensor target, host, squared;  // as the transfer's
    bool add = false;
    device::Point landed;                 // received is free behind it
    std::vector<torch::Tensor> borrowed;  // goes back to the pool
  };

  Piece scatter_piece(const Transfer& transfer, const Range& columns);
  Piece all_reduce_piece(const Transfer& transfer, const Range& part);
  // Where the transfer wants elements [begin, end) of its range.
  static void aim(Piece& piece, const Transfer& transfer, const Range& part);
  void push(std::vector<Piece> pieces);
  void retire(std::vector<Piece> pieces);
  // Returns the point behind which the current stream finds the sum.
  device::Point land(Piece& piece);
  // Uses the sum on the device, behind `summed`.
  void take_sum(Piece& piece, const device::Point& summed);
  void give_back(std::vector<Piece> pieces);

  GradReducerOptions options_;
  BufferPool& pool_;
  InFlight<std::vector<Piece>> in_flight_;
  InFlight<std::vector<Piece>> landing_;  // on their way to the host
};

}  // namespace zeroth::zero
