#include "engine/verify/verify_batches_match.h"

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

void verify_batches_match(int64_t fingerprint, int64_t step, const comm::DeviceMesh& mesh) {
  const int group_size = mesh.layout().shape()[comm::MeshDim::kTp];
  const torch::Tensor all = torch::empty({mesh.world_size()}, torch::kLong);
  mesh.cpu_group()
      .all_gather(all, torch::full({1}, fingerprint, torch::kLong), "hashes of samples")
      .wait();
  const int64_t* const hashes = all.const_data_ptr<int64_t>();
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    // Mesh dim tp is the last one, so that ranks that share layers are neighbors.
    const int first = rank / group_size * group_size;
    if (hashes[rank] == hashes[first]) continue;
    throw Error(
        "ranks {} and {} share every layer (tensor_parallel.autotp_size {}) but fetched "
        "different samples for step {}: hashes {:x} and {:x}",
        first, rank, group_size, step, static_cast<uint64_t>(hashes[first]),
        static_cast<uint64_t>(hashes[rank]));
  }
}

void verify_batches_match(const model::MicroBatch& batch, int64_t step,
                          const comm::DeviceMesh& mesh) {
  if (mesh.layout().shape()[comm::MeshDim::kTp] == 1) return;
  verify_batches_match(fingerprint(batch), step, mesh);
}

}  // namespace zeroth::engine
