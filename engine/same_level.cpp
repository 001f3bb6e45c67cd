#include "engine/same_level.h"

#include <string_view>

#include "base/error.h"
#include "comm/agreement.h"
#include "engine/parameter_order.h"

namespace zeroth::engine {
namespace {

struct Found {
  int64_t value;
  int64_t rank;  // the first that has it
};

struct Extremes {
  Found least, greatest;
};

Found least(int64_t value, std::string_view what, const comm::Mesh& mesh) {
  const int64_t found = comm::least_over_ranks(value, what, mesh);
  return {found, comm::least_over_ranks(value == found ? mesh.rank() : kNone, what, mesh)};
}

Extremes extremes_of(int64_t value, std::string_view what, const comm::Mesh& mesh) {
  const Found least_one = least(value, what, mesh), opposite = least(-value, what, mesh);
  return {least_one, {-opposite.value, opposite.rank}};
}

// Processors of one level and maker differ in AMX, or the ranks in ZEROTH_PRODUCT.
void require_same_products(const CpuProducts& own, const comm::Mesh& mesh) {
  const std::pair<const char*, CpuProduct> products[] = {{"fp32", own.fp32},
                                                         {"small matrices in fp32", own.small_fp32},
                                                         {"bf16", own.bf16},
                                                         {"fp16", own.fp16}};
  for (const auto& [format, product] : products) {
    const auto [one, other] =
        extremes_of(static_cast<int64_t>(product), "products of matrices", mesh);
    if (one.value == other.value) continue;
    const auto name = [](const Found& found) {
      return name_of(static_cast<CpuProduct>(found.value));
    };
    throw Error(
        "rank {} multiplies {} by {}, rank {} by {}: their results would differ. Set "
        "ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the environment of all ranks",
        one.rank, format, name(one), other.rank, name(other));
  }
}

}  // namespace

void require_same_level(const Processor& own, const comm::Mesh& mesh) {
  if (!mesh.device().is_cpu()) return;
  const auto [lowest, highest] = extremes_of(static_cast<int64_t>(own.level), "CPU levels", mesh);
  const auto name = [](const Found& found) { return name_of(static_cast<CpuLevel>(found.value)); };
  if (lowest.value != highest.value) {
    throw Error(
        "rank {} computes by {}, rank {} by {}: their results would differ. Set ZEROTH_CPU={} in "
        "the environment of all ranks",
        lowest.rank, name(lowest), highest.rank, name(highest), name(lowest));
  }
  const auto [other, intel] = extremes_of(own.is_intel ? 1 : 0, "makers of processors", mesh);
  if (other.value != intel.value) {
    throw Error(
        "rank {} computes on a processor of Intel's, rank {} on another maker's: libraries choose "
        "their products by it, and results would differ. Run all ranks on processors of one maker",
        intel.rank, other.rank);
  }
  require_same_products(own.products, mesh);
}

}  // namespace zeroth::engine
