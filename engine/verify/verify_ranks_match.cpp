#include "engine/verify/verify_ranks_match.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "comm/cpu_collectives.h"
#include "engine/verify/parameter_faults.h"

namespace zeroth::engine {
namespace {

struct RankValue {
  int64_t value;
  int64_t rank;  // first rank with this value
};

RankValue min_value(int64_t value, std::string_view what, const comm::DeviceMesh& mesh) {
  const int64_t found = comm::min_over_ranks(value, what, mesh);
  return {found, comm::min_over_ranks(value == found ? mesh.rank() : kNone, what, mesh)};
}

std::pair<RankValue, RankValue> min_max(int64_t value, std::string_view what,
                                        const comm::DeviceMesh& mesh) {
  const RankValue smallest = min_value(value, what, mesh),
                  largest_negated = min_value(-value, what, mesh);
  return {smallest, {-largest_negated.value, largest_negated.rank}};
}

template <typename Enum>
auto enum_name(const RankValue& found) {
  return to_string(static_cast<Enum>(found.value));
}

// Compares the matmul backends: processors of one level and maker may differ in AMX, or ranks in
// ZEROTH_PRODUCT.
void verify_products_match(const MatmulBackends& own, const comm::DeviceMesh& mesh) {
  const std::pair<const char*, MatmulBackend> products[] = {
      {"fp32", own.fp32},
      {"small matrices in fp32", own.small_fp32},
      {"bf16", own.bf16},
      {"fp16", own.fp16}};
  for (const auto& [format, product] : products) {
    const auto [one, other] = min_max(static_cast<int64_t>(product), "products of matrices", mesh);
    if (one.value == other.value) continue;
    throw Error(
        "rank {} multiplies {} with {}, rank {} with {}: their results would differ. Set "
        "ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the environment of all ranks",
        one.rank, format, enum_name<MatmulBackend>(one), other.rank,
        enum_name<MatmulBackend>(other));
  }
}

uint64_t hash_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const torch::Tensor host = tensor.to(torch::kCPU).contiguous();
  return fnv1a(std::string_view(static_cast<const char*>(host.data_ptr()), host.nbytes()));
}

}  // namespace

void verify_cpu_isa_matches(const CpuProfile& own, const comm::DeviceMesh& mesh) {
  if (!mesh.device().is_cpu()) return;
  const auto [lowest, highest] = min_max(static_cast<int64_t>(own.level), "CPU levels", mesh);
  const auto name = enum_name<CpuIsa>;
  if (lowest.value != highest.value) {
    throw Error(
        "rank {} computes with {}, rank {} with {}: their results would differ. Set ZEROTH_CPU={} "
        "in the environment of all ranks",
        lowest.rank, name(lowest), highest.rank, name(highest), name(lowest));
  }
  const auto [other, intel] = min_max(own.is_intel ? 1 : 0, "makers of processors", mesh);
  if (other.value != intel.value) {
    throw Error(
        "rank {} computes on an Intel processor, rank {} on another vendor's: libraries choose "
        "their kernels by vendor, and results would differ. Run all ranks on processors of one "
        "vendor",
        intel.rank, other.rank);
  }
  verify_products_match(own.products, mesh);
}

void verify_partition_matches(const std::vector<int>& block_pp_ranks,
                              const comm::DeviceMesh& mesh) {
  if (block_pp_ranks.empty()) return;
  uint64_t hash = 0;
  for (const int rank : block_pp_ranks) hash = mix64(hash + kGolden) ^ static_cast<uint64_t>(rank);
  const auto [one, other] =
      min_max(static_cast<int64_t>(hash >> 1), "partitions of the blocks", mesh);
  if (one.value == other.value) return;
  throw Error(
      "ranks {} and {} divide the blocks among the stages differently: give all ranks the same "
      "times (InitOptions::block_times) and the same section pipeline",
      one.rank, other.rank);
}

bool shares_batches(const comm::DeviceMesh& mesh) {
  return mesh.layout().shape().ranks_along({comm::MeshDim::kPp, comm::MeshDim::kTp}) > 1;
}

int64_t fingerprint(const model::MicroBatch& batch) {
  uint64_t hash = 0;
  const auto add = [&](uint64_t part) { hash = mix64(hash + kGolden) ^ part; };
  for (const int64_t sample : batch.samples) add(static_cast<uint64_t>(sample));
  for (const torch::Tensor& tensor :
       {batch.tokens, batch.targets, batch.positions, batch.first_keys, batch.attention_mask}) {
    add(hash_of(tensor));
  }
  return static_cast<int64_t>(hash);
}

void verify_batches_match(int64_t fingerprint, int64_t step, const comm::DeviceMesh& mesh) {
  using enum comm::MeshDim;
  const torch::Tensor all = torch::empty({mesh.world_size()}, torch::kLong);
  mesh.cpu_group()
      .all_gather(all, torch::full({1}, fingerprint, torch::kLong), "hashes of samples")
      .wait();
  const int64_t* const hashes = all.const_data_ptr<int64_t>();
  const comm::MeshShape& shape = mesh.layout().shape();
  for (const std::vector<int>& sharing : mesh.layout().along({kPp, kTp}).parts) {
    for (const int rank : sharing) {
      const int first = sharing.front();
      if (hashes[rank] == hashes[first]) continue;
      throw Error(
          "ranks {} and {} share {} but fetched different samples for step {}: hashes {:x} and "
          "{:x}",
          first, rank,
          shape[kPp] == 1 ? fmt::format("every layer (tensor_parallel.autotp_size {})", shape[kTp])
                          : fmt::format("a pipeline (mesh {})", shape.str()),
          step, static_cast<uint64_t>(hashes[first]), static_cast<uint64_t>(hashes[rank]));
    }
  }
}

void verify_batches_match(const model::MicroBatch& batch, int64_t step,
                          const comm::DeviceMesh& mesh) {
  if (!shares_batches(mesh)) return;
  verify_batches_match(fingerprint(batch), step, mesh);
}

}  // namespace zeroth::engine
