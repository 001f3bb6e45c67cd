#include "zero/grad_exchange.h"

#include <algorithm>

#include "base/error.h"
#include "optim/squared_norm.h"

namespace zeroth::zero {
namespace {

int64_t elements(const auto& buckets) {
  int64_t sum = 0;
  for (const auto& bucket : buckets) sum += bucket.sent.numel();
  return sum;
}

}  // namespace

GradExchange::GradExchange(const GradReducerOptions& options, BufferPool& pool)
    : options_(options),
      pool_(pool),
      in_flight_(options.max_in_flight, options.bucket_elements,
                 [this](std::vector<GradBucket> buckets) { retire(std::move(buckets)); }),
      offloading_(options.max_in_flight, options.bucket_elements,
                  [this](std::vector<GradBucket> buckets) { return_to_pool(std::move(buckets)); }) {
}

void GradExchange::start(const GradTransfer& transfer) {
  const int64_t numel = transfer.whole.numel();
  for (const torch::Tensor& target : {transfer.target, transfer.host}) {
    ZEROTH_CHECK(numel > 0 && (!target.defined() || target.numel() == transfer.range.size()),
                 "{} elements, {} wanted, {} in the target", numel, transfer.range.size(),
                 target.numel());
  }
  const bool scatters = options_.reduce_scatter && transfer.range.size() < numel;
  // A reduce-scattered bucket has columns of every rank's shard.
  const int64_t ranks = scatters ? transfer.shard_group.size() : 1;
  const int64_t length = numel / ranks;
  constexpr int64_t kAlignment = FlatLayout::kAlignment;
  const int64_t step =
      std::max(options_.bucket_elements / ranks / kAlignment, int64_t{1}) * kAlignment;
  std::vector<GradBucket> buckets;
  for (int64_t begin = 0; begin < length;) {
    const int64_t end = step < length - begin ? begin + step : length;
    buckets.push_back(scatters ? reduce_scatter_bucket(transfer, {begin, end})
                               : all_reduce_bucket(transfer, {begin, end}));
    buckets.back().add = transfer.add;
    if (transfer.return_to_pool && end == length) buckets.back().pooled.push_back(transfer.whole);
    // Without overlap a bucket's copy makes room for the next one.
    if (options_.max_in_flight == 0) push(std::exchange(buckets, {}));
    begin = end;
  }
  if (!buckets.empty()) push(std::move(buckets));
}

void GradExchange::push(std::vector<GradBucket> buckets) {
  const auto ended = [](const GradBucket& bucket) { return bucket.pending.done(); };
  // Retire a finished sum at once, as its buffers are free only after the copy to the CPU.
  if (options_.gradient_offload && in_flight_.empty() &&
      std::all_of(buckets.begin(), buckets.end(), ended)) {
    return retire(std::move(buckets));
  }
  const int64_t numel = elements(buckets);
  in_flight_.push(std::move(buckets), numel);
}

GradExchange::GradBucket GradExchange::reduce_scatter_bucket(const GradTransfer& transfer,
                                                             const Range& columns) {
  const int64_t ranks = transfer.shard_group.size();
  GradBucket bucket;
  set_targets(bucket, transfer, columns);
  bucket.sent = transfer.whole;
  if (columns.size() < transfer.range.size() || bucket.sent.scalar_type() != options_.wire) {
    bucket.sent = pool_.acquire_tensor(ranks * columns.size(), options_.wire);
    bucket.pooled.push_back(bucket.sent);
    bucket.sent.view({ranks, -1})
        .copy_(transfer.whole.view({ranks, -1}).narrow(1, columns.begin, columns.size()));
  }
  // Reduce into the target itself if possible.
  const bool direct = !transfer.add && bucket.target.defined() &&
                      bucket.target.scalar_type() == options_.wire &&
                      !bucket.target.is_alias_of(bucket.sent);
  bucket.received = direct ? bucket.target : pool_.acquire_tensor(columns.size(), options_.wire);
  if (!direct) bucket.pooled.push_back(bucket.received);
  bucket.pending = transfer.shard_group.reduce_scatter(bucket.received, bucket.sent, transfer.what);
  return bucket;
}

GradExchange::GradBucket GradExchange::all_reduce_bucket(const GradTransfer& transfer,
                                                         const Range& part) {
  GradBucket bucket;
  bucket.sent = transfer.whole.narrow(0, part.begin, part.size());
  if (bucket.sent.scalar_type() != options_.wire) {
    const torch::Tensor copy = pool_.acquire_tensor(part.size(), options_.wire);
    bucket.sent = copy.copy_(bucket.sent);
    bucket.pooled.push_back(bucket.sent);
  }
  bucket.pending =
      transfer.shard_group.all_reduce(bucket.sent, comm::ReduceOp::kSum, transfer.what);
  const int64_t begin = std::max(part.begin, transfer.range.begin);
  const int64_t end = std::min(part.end, transfer.range.end);
  if (begin < end) {
    bucket.received = bucket.sent.narrow(0, begin - part.begin, end - begin);
    set_targets(bucket, transfer, {begin - transfer.range.begin, end - transfer.range.begin});
  }
  return bucket;
}

void GradExchange::set_targets(GradBucket& bucket, const GradTransfer& transfer,
                               const Range& part) {
  const auto cut = [&](const torch::Tensor& target) {
    return target.defined() ? target.narrow(0, part.begin, part.size()) : target;
  };
  bucket.target = cut(transfer.target);
  bucket.host = cut(transfer.host);
  bucket.squared = transfer.squared;
}

void GradExchange::retire(std::vector<GradBucket> buckets) {
  if (options_.gradient_offload) options_.gradient_offload->begin_gradient();
  for (GradBucket& bucket : buckets) {
    const device::StreamEvent summed =
        bucket.host.defined() ? start_offload(bucket) : device::StreamEvent();
    if (bucket.target.defined() || bucket.squared.defined()) accumulate_sum(bucket, summed);
  }
  if (!options_.gradient_offload) return return_to_pool(std::move(buckets));
  // Keep this order also for buckets without a copy: they may share memory with those that have
  // one.
  const int64_t numel = elements(buckets);
  offloading_.push(std::move(buckets), numel);
}

device::StreamEvent GradExchange::start_offload(GradBucket& bucket) {
  // The copy waits for the sum, and not for work queued on the device meanwhile.
  device::CopyStream& copies = options_.gradient_offload->copies();
  const bool done = bucket.pending.done();
  const device::StreamEvent summed =
      done ? copies.record_event()
           : copies.record_after([&] { bucket.pending.block_current_stream(); });
  bucket.offloaded =
      options_.gradient_offload->start_copy(bucket.received, bucket.host, bucket.add, summed);
  return done ? device::StreamEvent() : summed;
}

void GradExchange::accumulate_sum(GradBucket& bucket, const device::StreamEvent& summed) {
  bucket.pending.wait();
  if (options_.gradient_offload) options_.gradient_offload->copies().wait_event(summed);
  const torch::Tensor& sum = bucket.received;
  if (bucket.squared.defined()) {
    bucket.squared.add_(optim::squared_norms({sum}, sum.device()).squeeze(0));
  }
  if (bucket.target.defined() && sum.data_ptr() != bucket.target.data_ptr()) {
    bucket.add ? bucket.target.add_(sum) : bucket.target.copy_(sum);
  }
}

void GradExchange::return_to_pool(std::vector<GradBucket> buckets) {
  for (GradBucket& bucket : buckets) {
    bucket.pending.wait();
    if (options_.gradient_offload) options_.gradient_offload->copies().wait_event(bucket.offloaded);
    for (torch::Tensor& tensor : bucket.pooled) pool_.release_tensor(std::move(tensor));
  }
}

void GradExchange::drain() {
  in_flight_.drain();
  offloading_.drain();
  if (options_.gradient_offload) options_.gradient_offload->finish();
}

}  // namespace zeroth::zero
