#include "base/machine/cpu.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zeroth {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"plain", "avx2", "avx512", "avx512_bf16",
                                                    "avx512_fp16"};
constexpr std::array<std::string_view, 3> kBackendNames = {"libtorch", "onednn", "tiles"};

constexpr int kMaxCores = 8192;  // the kernel's own limit on x86-64

// A CoreMask has as many cpu_set_t as kMaxCores bits need; a single one ends at 1024.
struct CoreMask {
  std::array<cpu_set_t, kMaxCores / CPU_SETSIZE> sets{};

  cpu_set_t* data() { return sets.data(); }
  size_t size_bytes() const { return sizeof(sets); }
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the index of the value of the environment variable `variable` among `names`.
template <size_t kCount>
size_t index_of(const std::array<std::string_view, kCount>& names, std::string_view variable,
                const std::string& value) {
  const auto* const found = std::find(names.begin(), names.end(), value);
  if (found == names.end()) {
    throw Error("environment variable {}={} is invalid: expected one of {}", variable,
                printable(value), fmt::join(names, ", "));
  }
  return static_cast<size_t>(found - names.begin());
}

bool has_bits(uint64_t value, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [&](int bit) { return (value >> bit & 1) != 0; });
}

#if defined(__x86_64__)

constexpr bool kIsX86 = true;

CpuId read_cpuid() {
  CpuId id;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return id;
  const std::array<unsigned, 3> letters = {ebx, edx, ecx};
  id.vendor.resize(sizeof(letters));
  std::memcpy(id.vendor.data(), letters.data(), sizeof(letters));
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) id.leaf1_ecx = ecx;
  unsigned subleaves = 0;
  if (__get_cpuid_count(7, 0, &subleaves, &ebx, &ecx, &edx) != 0) {
    id.leaf7_ebx = ebx;
    id.leaf7_edx = edx;
    if (subleaves >= 1) __get_cpuid_count(7, 1, &id.leaf7_1_eax, &ebx, &ecx, &edx);
  }
  if (has_bits(id.leaf1_ecx, {27})) {  // OSXSAVE: the kernel lets programs read XCR0
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    id.xcr0 = uint64_t{high} << 32 | low;
  }
  return id;
}

#else

constexpr bool kIsX86 = false;

CpuId read_cpuid() {
  return {};
}

#endif

MatmulBackends select_backends(const std::string& forced) {
  const MatmulBackends fastest =
      kIsX86 ? fastest_matmul_backends(cpu_features()) : MatmulBackends{};
  return forced_matmul_backends(fastest, cpu_features(), forced);
}

MatmulBackends& active_backends() {
  static MatmulBackends products = select_backends(variable("ZEROTH_PRODUCT"));
  return products;
}

}  // namespace

CpuFeatures detect_features(const CpuId& id) {
  CpuFeatures features;
  features.is_intel = id.vendor == "GenuineIntel";
  constexpr int kFma = 12, kAvx = 28, kF16c = 29, kAvx2 = 5;
  if (!has_bits(id.leaf1_ecx, {kFma, kAvx, kF16c}) || !has_bits(id.leaf7_ebx, {kAvx2}) ||
      !has_bits(id.xcr0, {1, 2})) {
    return features;
  }
  features.isa = CpuIsa::kAvx2;
  constexpr int kF = 16, kDq = 17, kBw = 30, kVl = 31;
  if (!has_bits(id.leaf7_ebx, {kF, kDq, kBw, kVl}) || !has_bits(id.xcr0, {5, 6, 7}))
    return features;
  features.isa = CpuIsa::kAvx512;
  constexpr int kBf16 = 5, kFp16 = 23;
  if (!has_bits(id.leaf7_1_eax, {kBf16})) return features;
  features.isa = has_bits(id.leaf7_edx, {kFp16}) ? CpuIsa::kAvx512Fp16 : CpuIsa::kAvx512Bf16;
  constexpr int kAmxBf16 = 22, kAmxTile = 24;
  features.has_amx = has_bits(id.leaf7_edx, {kAmxBf16, kAmxTile}) && has_bits(id.xcr0, {17, 18});
  return features;
}

CpuIsa detected_cpu_isa() {
  static const CpuIsa isa = detect_features(read_cpuid()).isa;
  return isa;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures used = limit_cpu(detect_features(read_cpuid()), variable("ZEROTH_CPU"));
  return used;
}

bool cpu_is_intel() {
  return cpu_features().is_intel;
}

std::string_view to_string(CpuIsa isa) {
  return kNames.at(static_cast<size_t>(isa));
}

CpuIsa limit_cpu(CpuIsa processor, const std::string& limit) {
  if (limit.empty()) return processor;
  return std::min(processor, static_cast<CpuIsa>(index_of(kNames, "ZEROTH_CPU", limit)));
}

CpuFeatures limit_cpu(CpuFeatures processor, const std::string& limit) {
  const CpuIsa isa = limit_cpu(processor.isa, limit);
  processor.has_amx = processor.has_amx && isa == processor.isa;
  processor.isa = isa;
  return processor;
}

CpuIsa cpu_isa() {
  return cpu_features().isa;
}

std::string describe_cpu_isa(CpuIsa used, CpuIsa processor) {
  if (used == processor) return std::string(to_string(used));
  return fmt::format("{} (ZEROTH_CPU; the processor has {})", to_string(used),
                     to_string(processor));
}

std::string_view to_string(MatmulBackend product) {
  return kBackendNames.at(static_cast<size_t>(product));
}

MatmulBackends fastest_matmul_backends(const CpuFeatures& features) {
  const auto [isa, is_intel, has_amx] = features;
  const bool has_fast_bf16 = isa >= CpuIsa::kAvx512Bf16 && (!is_intel || has_amx);
  return {
      .fp32 = isa >= CpuIsa::kAvx2 && !is_intel ? MatmulBackend::kOneDnn : MatmulBackend::kLibTorch,
      .bf16 = has_fast_bf16 ? MatmulBackend::kLibTorch : MatmulBackend::kTiles,
      .fp16 = isa >= CpuIsa::kAvx512Fp16 ? MatmulBackend::kLibTorch : MatmulBackend::kTiles,
  };
}

MatmulBackends forced_matmul_backends(const MatmulBackends& fastest, const CpuFeatures& features,
                                      const std::string& forced) {
  if (forced.empty()) return fastest;
  const auto product =
      static_cast<MatmulBackend>(index_of(kBackendNames, "ZEROTH_PRODUCT", forced));
  if (!kIsX86) {
    if (product == MatmulBackend::kTiles)
      throw Error("ZEROTH_PRODUCT=tiles is not supported: this processor is not an x86");
    return {.fp32 = product, .small_fp32 = product};
  }
  const auto in_16_bits = [&](CpuIsa min_isa) {
    const bool has_tiles_only = product == MatmulBackend::kTiles || features.isa < min_isa;
    return has_tiles_only ? MatmulBackend::kTiles : MatmulBackend::kLibTorch;
  };
  return {.fp32 = product,
          .small_fp32 = product,
          .bf16 = in_16_bits(CpuIsa::kAvx512Bf16),
          .fp16 = in_16_bits(CpuIsa::kAvx512Fp16)};
}

const MatmulBackends& matmul_backends() {
  return active_backends();
}

MatmulBackendGuard::MatmulBackendGuard(const std::string& forced) : before_(active_backends()) {
  active_backends() = select_backends(forced);
}

MatmulBackendGuard::~MatmulBackendGuard() {
  active_backends() = before_;
}

std::vector<int> allowed_cores() {
  CoreMask mask;
  if (::sched_getaffinity(0, mask.size_bytes(), mask.data()) != 0) {
    throw Error("cannot read the CPU affinity of this process: {}", system_reason(errno));
  }
  std::vector<int> cores;
  for (int core = 0; core < kMaxCores; ++core)
    if (CPU_ISSET_S(core, mask.size_bytes(), mask.data())) cores.push_back(core);
  return cores;
}

int set_affinity(const std::vector<int>& cores) {
  CoreMask mask;
  for (int core : cores) CPU_SET_S(core, mask.size_bytes(), mask.data());
  return ::sched_setaffinity(0, mask.size_bytes(), mask.data()) == 0 ? 0 : errno;
}

}  // namespace zeroth
