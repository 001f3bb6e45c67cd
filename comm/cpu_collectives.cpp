#include "comm/cpu_collectives.h"

#include <algorithm>
#include <cstring>

namespace zeroth::comm {
namespace {

template <typename Value>
void all_reduce_span(std::span<Value> values, ReduceOp op, std::string_view what,
                     const DeviceMesh& mesh) {
  // A copy, because the caller's memory is gone if the wait throws.
  const torch::Tensor tensor = torch::tensor(at::ArrayRef<Value>(values.data(), values.size()),
                                             torch::CppTypeToScalarType<Value>::value);
  mesh.cpu_group().all_reduce(tensor, op, what).wait();
  std::copy_n(tensor.template const_data_ptr<Value>(), values.size(), values.begin());
}

}  // namespace

void all_reduce_values(std::span<double> values, ReduceOp op, std::string_view what,
                       const DeviceMesh& mesh) {
  all_reduce_span(values, op, what, mesh);
}

void all_reduce_values(std::span<int64_t> values, ReduceOp op, std::string_view what,
                       const DeviceMesh& mesh) {
  all_reduce_span(values, op, what, mesh);
}

int64_t min_over_ranks(int64_t value, std::string_view what, const DeviceMesh& mesh) {
  all_reduce_values({&value, 1}, ReduceOp::kMin, what, mesh);
  return value;
}

int64_t max_over_ranks(int64_t value, std::string_view what, const DeviceMesh& mesh) {
  all_reduce_values({&value, 1}, ReduceOp::kMax, what, mesh);
  return value;
}

// Strings of unequal length are gathered in rows as long as the longest.
std::vector<std::string> all_gather_strings(const std::string& own, std::string_view what,
                                            Group& group) {
  torch::Tensor lengths = at::zeros({group.size()}, torch::kLong);
  group.all_gather(lengths, at::full({1}, std::ssize(own), torch::kLong), what).wait();
  const int64_t longest = lengths.max().item<int64_t>();
  std::vector<std::string> texts(static_cast<size_t>(group.size()));
  if (longest == 0) return texts;
  const torch::Tensor row = at::zeros({longest}, torch::kByte);
  std::memcpy(row.data_ptr(), own.data(), own.size());
  const torch::Tensor rows = at::zeros({group.size() * longest}, torch::kByte);
  group.all_gather(rows, row, what).wait();
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto index = static_cast<int64_t>(rank);
    texts[rank].assign(static_cast<const char*>(rows.data_ptr()) + index * longest,
                       static_cast<size_t>(lengths[index].item<int64_t>()));
  }
  return texts;
}

void barrier(const DeviceMesh& mesh) {
  double nothing = 0;
  all_reduce_values({&nothing, 1}, ReduceOp::kSum, kBarrier, mesh);
}

}  // namespace zeroth::comm
