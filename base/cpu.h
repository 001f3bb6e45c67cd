// What the code has to know of the processor that it runs on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zeroth {

// Instruction sets by which kernels are compiled and libraries chosen; each has all before it.
enum class CpuIsa {
  kBaseline,    // what every processor of the architecture has; all that others than x86 have here
  kAvx2,        // and FMA and F16C
  kAvx512,      // F, BW, DQ and VL, which come together but on Xeon Phi
  kAvx512Bf16,  // products of bfloat16
  kAvx512Fp16,  // products of fp16
};

// "plain", "avx2", "avx512", "avx512_bf16", "avx512_fp16": the values of ZEROTH_CPU.
std::string_view to_string(CpuIsa isa);

// The highest level that this processor has.
CpuIsa detected_cpu_isa();

// The level that this process uses, the same in its whole life: the processor's, or the one that
// ZEROTH_CPU in the environment holds it down to. Throws an Error for a value that is no level.
CpuIsa cpu_isa();

// The lower one of `processor` and the level that `limit` names; empty: `processor`. Throws like
// cpu_isa().
CpuIsa limit_cpu(CpuIsa processor, const std::string& limit);

// "avx512_bf16", or "avx2 (ZEROTH_CPU; the processor has avx512_bf16)".
std::string describe_cpu_isa(CpuIsa used = cpu_isa(), CpuIsa processor = detected_cpu_isa());

// What CPUID (of leaves 0, 1 and 7) and XGETBV say of an x86 processor, as far as anything here
// depends on it.
struct CpuId {
  std::string vendor;  // "GenuineIntel", "AuthenticAMD"
  uint32_t leaf1_ecx = 0, leaf7_ebx = 0, leaf7_edx = 0, leaf7_1_eax = 0;
  uint64_t xcr0 = 0;  // the registers that the kernel saves
};

struct CpuFeatures {
  CpuIsa isa = CpuIsa::kBaseline;
  bool is_intel = false;
  bool has_amx = false;  // units for products of bf16 matrices
};

CpuFeatures detect_features(const CpuId& id);

// The processor as this process uses it, at cpu_isa(). On other architectures than x86: plain.
const CpuFeatures& cpu_features();
// AMX came with processors of the highest level: one that is held down to a lower level has none.
CpuFeatures limit_cpu(CpuFeatures processor, const std::string& limit);

bool cpu_is_intel();  // its maker; false on other architectures than x86

// What multiplies matrices on the CPU.
enum class MatmulBackend {
  kLibTorch,  // LibTorch's own product: MKL's in fp32, oneDNN's in 16 bits
  kOneDnn,    // oneDNN's product in fp32; in 16 bits LibTorch's, which is the same
  kTiles,     // tiles of fp32 (model/kernels/tiled_product.h), to which 16-bit factors are widened
};

// "libtorch", "onednn", "tiles": the values of ZEROTH_PRODUCT.
std::string_view to_string(MatmulBackend product);

// By the dtype of the factors.
struct MatmulBackends {
  MatmulBackend fp32 = MatmulBackend::kLibTorch;
  MatmulBackend small_fp32 =
      MatmulBackend::kLibTorch;  // of fewer than kSmallMatmul multiplications
  MatmulBackend bf16 = MatmulBackend::kLibTorch;
  MatmulBackend fp16 = MatmulBackend::kLibTorch;
  bool operator==(const MatmulBackends&) const = default;
};

inline constexpr int64_t kSmallMatmul = 1 << 20;

// The fastest products of an x86 processor:
//   fp32  MKL keeps to AVX2 on processors of other makers than Intel even where they have AVX-512:
//         oneDNN's product is twice as fast where a register of 512 bits is computed at once (Zen
//         5), and not slower where it is not (Zen 4, AVX2). In small ones the set-up of a call of
//         oneDNN weighs more.
//   bf16  LibTorch's product where instructions for it are faster than those of fp32. Processors of
//         Intel's without AMX (Cooper Lake, or one whose AMX a virtual machine hides) execute one
//         VDPBF16PS in the time of two fp32 instructions, and oneDNN's bf16 product has half of the
//         speed of fp32 (88 and 165 GFLOP/s for a thread): tiles. So do processors without any
//         instructions for bf16, where LibTorch's product is a scalar loop.
//   fp16  LibTorch's product with AVX-512 FP16, else tiles.
MatmulBackends fastest_matmul_backends(const CpuFeatures& features);

// The products that `forced` names, a value of ZEROTH_PRODUCT; empty: `fastest`. LibTorch's scalar
// loops of 16 bits are never chosen. Throws an Error for a value that is no product, and for tiles
// on other architectures than x86.
MatmulBackends forced_matmul_backends(const MatmulBackends& fastest, const CpuFeatures& features,
                                      const std::string& forced);

// The products that this process uses, the same in its whole life: the fastest ones, or those that
// ZEROTH_PRODUCT in the environment forces, which is meant for tests. Throws like
// forced_matmul_backends().
const MatmulBackends& matmul_backends();

// Until the end of its life matmul_backends() are those that `forced` names. For tests, which
// compare products within a process: no other thread multiplies when it begins or ends.
class MatmulBackendGuard {
 public:
  explicit MatmulBackendGuard(const std::string& forced);
  ~MatmulBackendGuard();
  MatmulBackendGuard(const MatmulBackendGuard&) = delete;
  MatmulBackendGuard& operator=(const MatmulBackendGuard&) = delete;

 private:
  MatmulBackends before_;
};

}  // namespace zeroth
