#include "base/cpu.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zeroth {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"plain", "avx2", "avx512", "avx512_bf16",
                                                    "avx512_fp16"};
constexpr std::array<std::string_view, 3> kProductNames = {"libtorch", "onednn", "tiles"};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool has_bits(uint64_t value, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [&](int bit) { return (value >> bit & 1) != 0; });
}

}  // namespace

#if defined(__x86_64__)

namespace {

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

}  // namespace

#else

namespace {

constexpr bool kIsX86 = false;

CpuId read_cpuid() {
  return {};
}

}  // namespace

#endif

CpuFeatures features_of(const CpuId& id) {
  CpuFeatures features;
  features.is_intel = id.vendor == "GenuineIntel";
  constexpr int kFma = 12, kAvx = 28, kF16c = 29, kAvx2 = 5;
  if (!has_bits(id.leaf1_ecx, {kFma, kAvx, kF16c}) || !has_bits(id.leaf7_ebx, {kAvx2}) ||
      !has_bits(id.xcr0, {1, 2})) {
    return features;
  }
  features.level = CpuLevel::kAvx2;
  constexpr int kF = 16, kDq = 17, kBw = 30, kVl = 31;
  if (!has_bits(id.leaf7_ebx, {kF, kDq, kBw, kVl}) || !has_bits(id.xcr0, {5, 6, 7}))
    return features;
  features.level = CpuLevel::kAvx512;
  constexpr int kBf16 = 5, kFp16 = 23;
  if (!has_bits(id.leaf7_1_eax, {kBf16})) return features;
  features.level = has_bits(id.leaf7_edx, {kFp16}) ? CpuLevel::kAvx512Fp16 : CpuLevel::kAvx512Bf16;
  constexpr int kAmxBf16 = 22, kAmxTile = 24;
  features.has_amx = has_bits(id.leaf7_edx, {kAmxBf16, kAmxTile}) && has_bits(id.xcr0, {17, 18});
  return features;
}

CpuLevel processor_level() {
  static const CpuLevel level = features_of(read_cpuid()).level;
  return level;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures used = held_down(features_of(read_cpuid()), variable("ZEROTH_CPU"));
  return used;
}

bool cpu_is_intel() {
  return cpu_features().is_intel;
}

std::string_view name_of(CpuLevel level) {
  return kNames.at(static_cast<size_t>(level));
}

CpuLevel held_down(CpuLevel processor, const std::string& held) {
  if (held.empty()) return processor;
  const auto* const found = std::find(kNames.begin(), kNames.end(), held);
  if (found == kNames.end()) {
    throw Error("environment variable ZEROTH_CPU={} is none of {}", printable(held),
                fmt::join(kNames, ", "));
  }
  return std::min(processor, static_cast<CpuLevel>(found - kNames.begin()));
}

CpuFeatures held_down(CpuFeatures processor, const std::string& held) {
  const CpuLevel level = held_down(processor.level, held);
  processor.has_amx = processor.has_amx && level == processor.level;
  processor.level = level;
  return processor;
}

CpuLevel cpu_level() {
  return cpu_features().level;
}

std::string cpu_level_text(CpuLevel used, CpuLevel processor) {
  if (used == processor) return std::string(name_of(used));
  return fmt::format("{} (ZEROTH_CPU; the processor has {})", name_of(used), name_of(processor));
}

std::string_view name_of(CpuProduct product) {
  return kProductNames.at(static_cast<size_t>(product));
}

CpuProducts fastest_products(const CpuFeatures& features) {
  const auto [level, is_intel, has_amx] = features;
  const bool multiplies_bf16 = level >= CpuLevel::kAvx512Bf16 && (!is_intel || has_amx);
  return {
      .fp32 = level >= CpuLevel::kAvx2 && !is_intel ? CpuProduct::kOneDnn : CpuProduct::kLibTorch,
      .bf16 = multiplies_bf16 ? CpuProduct::kLibTorch : CpuProduct::kTiles,
      .fp16 = level >= CpuLevel::kAvx512Fp16 ? CpuProduct::kLibTorch : CpuProduct::kTiles,
  };
}

CpuProducts forced_products(const CpuProducts& fastest, const CpuFeatures& features,
                            const std::string& forced) {
  if (forced.empty()) return fastest;
  const auto* const found = std::find(kProductNames.begin(), kProductNames.end(), forced);
  if (found == kProductNames.end()) {
    throw Error("environment variable ZEROTH_PRODUCT={} is none of {}", printable(forced),
                fmt::join(kProductNames, ", "));
  }
  const auto product = static_cast<CpuProduct>(found - kProductNames.begin());
  if (!kIsX86) {
    if (product == CpuProduct::kTiles)
      throw Error("ZEROTH_PRODUCT=tiles is not supported: this processor is not an x86");
    return {.fp32 = product, .small_fp32 = product};
  }
  const auto in_16_bits = [&](CpuLevel least) {
    const bool has_tiles_only = product == CpuProduct::kTiles || features.level < least;
    return has_tiles_only ? CpuProduct::kTiles : CpuProduct::kLibTorch;
  };
  return {.fp32 = product,
          .small_fp32 = product,
          .bf16 = in_16_bits(CpuLevel::kAvx512Bf16),
          .fp16 = in_16_bits(CpuLevel::kAvx512Fp16)};
}

namespace {

CpuProducts products_by(const std::string& forced) {
  const CpuProducts fastest = kIsX86 ? fastest_products(cpu_features()) : CpuProducts{};
  return forced_products(fastest, cpu_features(), forced);
}

CpuProducts& products_in_use() {
  static CpuProducts products = products_by(variable("ZEROTH_PRODUCT"));
  return products;
}

}  // namespace

const CpuProducts& cpu_products() {
  return products_in_use();
}

ForcedProducts::ForcedProducts(const std::string& forced) : before_(products_in_use()) {
  products_in_use() = products_by(forced);
}

ForcedProducts::~ForcedProducts() {
  products_in_use() = before_;
}

}  // namespace zeroth
