#include "engine/same_draw.h"

#include <ATen/ATen.h>

#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace zeroth::engine {
namespace {

uint64_t hash_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const torch::Tensor host = tensor.to(torch::kCPU).contiguous();
  return fnv1a(std::string_view(static_cast<const char*>(host.data_ptr()), host.nbytes()));
}

}  // namespace

int64_t fingerprint(const model::MicroBatch& batch) {
  uint64_t hash = 0;
  const auto add = [&](uint64_t part) { hash = mix64(hash + kGolden) ^ part; };
  for (const int64_t sample : batch.samples) add(static_cast<uint64_t>(sample));
  for (const torch::Tensor& tensor : {batch.tokens, batch.targets, batch.positions}) {
    add(hash_of(tensor));
  }
  return static_cast<int64_t>(hash);
}

void require_same_draw(int64_t fingerprint, int64_t step, const comm::Mesh& mesh) {
  const int shared_by = mesh.grid().shape()[comm::Axis::kTensor];
  const torch::Tensor all = torch::empty({mesh.world_size()}, torch::kLong);
  mesh.host()
      .all_gather(all, torch::full({1}, fingerprint, torch::kLong), "hashes of samples")
      .wait();
  const int64_t* const hashes = all.const_data_ptr<int64_t>();
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    // Axis tensor is the last one: ranks that share layers are neighbours.
    const int first = rank / shared_by * shared_by;
    if (hashes[rank] == hashes[first]) continue;
    throw Error(
        "ranks {} and {} share every layer (tensor_parallel.autotp_size {}) but have drawn "
        "different samples for step {}: hashes {:x} and {:x}",
        first, rank, shared_by, step, static_cast<uint64_t>(hashes[first]),
        static_cast<uint64_t>(hashes[rank]));
  }
}

void require_same_draw(const model::MicroBatch& drawn, int64_t step, const comm::Mesh& mesh) {
  if (mesh.grid().shape()[comm::Axis::kTensor] == 1) return;
  require_same_draw(fingerprint(drawn), step, mesh);
}

}  // namespace zeroth::engine
