#include "engine/verify/verify_cpu_isa_matches.h"

#include <string_view>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "engine/verify/parameter_order.h"

namespace zeroth::engine {
namespace {

struct RankValue {
  int64_t value;
  int64_t rank;  // first rank with this value
};

struct MinMax {
  RankValue min_value, max_value;
};

RankValue min_value(int64_t value, std::string_view what, const comm::DeviceMesh& mesh) {
  const int64_t found = comm::min_over_ranks(value, what, mesh);
  return {found, comm::min_over_ranks(value == found ? mesh.rank() : kNone, what, mesh)};
}

MinMax min_max(int64_t value, std::string_view what, const comm::DeviceMesh& mesh) {
  const RankValue smallest = min_value(value, what, mesh),
                  largest_negated = min_value(-value, what, mesh);
  return {smallest, {-largest_negated.value, largest_negated.rank}};
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
    const auto name = [](const RankValue& found) {
      return to_string(static_cast<MatmulBackend>(found.value));
    };
    throw Error(
        "rank {} multiplies {} with {}, rank {} with {}: their results would differ. Set "
        "ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the environment of all ranks",
        one.rank, format, name(one), other.rank, name(other));
  }
}

}  // namespace

void verify_cpu_isa_matches(const CpuProfile& own, const comm::DeviceMesh& mesh) {
  if (!mesh.device().is_cpu()) return;
  const auto [lowest, highest] = min_max(static_cast<int64_t>(own.level), "CPU levels", mesh);
  const auto name = [](const RankValue& found) {
    return to_string(static_cast<CpuIsa>(found.value));
  };
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

}  // namespace zeroth::engine
