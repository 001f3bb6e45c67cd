// Properties of the CPU on which the code runs, and the cores on which a thread may run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// Instruction sets for which kernels are compiled and libraries are chosen. Each one includes all
// before it.
enum class CpuIsa {
  kBaseline,    // the architecture's baseline; the only one on architectures other than x86
  kAvx2,        // with FMA and F16C
  kAvx512,      // F, BW, DQ and VL, which come together except on Xeon Phi
  kAvx512Bf16,  // with products of bfloat16
  kAvx512Fp16,  // with products of fp16
};

// Returns "plain", "avx2", "avx512", "avx512_bf16" or "avx512_fp16": the values of ZEROTH_CPU.
std::string_view to_string(CpuIsa isa);

// Returns the highest instruction set that this CPU has.
CpuIsa detected_cpu_isa();

// Returns the instruction set that this process uses during its whole life: the CPU's, or the lower
// one that the environment variable ZEROTH_CPU names. Throws an Error if that value is invalid.
CpuIsa cpu_isa();

// Returns the lower one of `processor` and the instruction set that `limit` names, or `processor`
// if `limit` is empty. Throws like cpu_isa().
CpuIsa limit_cpu(CpuIsa processor, const std::string& limit);

// Returns "avx512_bf16", or "avx2 (ZEROTH_CPU; the processor has avx512_bf16)".
std::string describe_cpu_isa(CpuIsa used = cpu_isa(), CpuIsa processor = detected_cpu_isa());

// CpuId contains the results of CPUID (leaves 0, 1 and 7) and XGETBV on an x86 CPU that this code
// uses.
struct CpuId {
  std::string vendor;  // "GenuineIntel", "AuthenticAMD"
  uint32_t leaf1_ecx = 0, leaf7_ebx = 0, leaf7_edx = 0, leaf7_1_eax = 0;
  uint64_t xcr0 = 0;  // mask of the registers that the kernel saves
};

struct CpuFeatures {
  CpuIsa isa = CpuIsa::kBaseline;
  bool is_intel = false;
  bool has_amx = false;  // units for products of bf16 matrices
};

CpuFeatures detect_features(const CpuId& id);

// Returns the features that this process uses, at cpu_isa(). On architectures other than x86 they
// are "plain".
const CpuFeatures& cpu_features();
// Returns `processor` limited to `limit`. A CPU limited to a lower instruction set has no AMX,
// because AMX came with CPUs of the highest one.
CpuFeatures limit_cpu(CpuFeatures processor, const std::string& limit);

bool cpu_is_intel();  // the CPU's maker; false on architectures other than x86

// The implementations of matrix multiplication on the CPU.
enum class MatmulBackend {
  kLibTorch,  // LibTorch's own product: MKL's in fp32, oneDNN's in 16 bits
  kOneDnn,    // oneDNN's product in fp32; in 16 bits LibTorch's, which is the same
  kTiles,     // tiles of fp32 (model/kernels/matrix_product.h), to which 16-bit factors are widened
};

// Returns "libtorch", "onednn" or "tiles": the values of ZEROTH_PRODUCT.
std::string_view to_string(MatmulBackend product);

// MatmulBackends has one backend per dtype of the factors.
struct MatmulBackends {
  MatmulBackend fp32 = MatmulBackend::kLibTorch;
  MatmulBackend small_fp32 =
      MatmulBackend::kLibTorch;  // for products with fewer than kSmallMatmul multiplications
  MatmulBackend bf16 = MatmulBackend::kLibTorch;
  MatmulBackend fp16 = MatmulBackend::kLibTorch;
  bool operator==(const MatmulBackends&) const = default;
};

inline constexpr int64_t kSmallMatmul = 1 << 20;

// Returns the fastest backends of an x86 CPU:
//   fp32  On CPUs of makers other than Intel MKL keeps to AVX2 even if they have AVX-512. oneDNN's
//         product is twice as fast on a CPU that computes a 512-bit register at once (Zen 5), and
//         not slower on others (Zen 4, AVX2). In small products a oneDNN call's setup costs more.
//   bf16  LibTorch's product if the bf16 instructions are faster than those of fp32. Intel CPUs
//         without AMX (Cooper Lake, or one whose AMX a virtual machine hides) execute one VDPBF16PS
//         in the time of two fp32 instructions, and oneDNN's bf16 product has half of the speed of
//         fp32 (88 and 165 GFLOP/s for a thread). They use tiles. CPUs without bf16 instructions do
//         too, because LibTorch's product is a scalar loop on them.
//   fp16  LibTorch's product with AVX-512 FP16, otherwise tiles.
MatmulBackends fastest_matmul_backends(const CpuFeatures& features);

// Returns the backends that `forced`, a value of ZEROTH_PRODUCT, names, or `fastest` if it is
// empty. LibTorch's scalar 16-bit loops are never chosen. Throws an Error if the value names no
// backend, and for tiles on architectures other than x86.
MatmulBackends forced_matmul_backends(const MatmulBackends& fastest, const CpuFeatures& features,
                                      const std::string& forced);

// Returns the backends that this process uses during its whole life: the fastest ones, or those
// that the environment variable ZEROTH_PRODUCT forces, which is meant for tests. Throws like
// forced_matmul_backends().
const MatmulBackends& matmul_backends();

// A MatmulBackendGuard makes matmul_backends() return the backends that `forced` names until it is
// destroyed. Tests compare backends within a process by it. No other thread may multiply while it
// is constructed or destroyed.
class MatmulBackendGuard {
 public:
  explicit MatmulBackendGuard(const std::string& forced);
  ~MatmulBackendGuard();
  MatmulBackendGuard(const MatmulBackendGuard&) = delete;
  MatmulBackendGuard& operator=(const MatmulBackendGuard&) = delete;

 private:
  MatmulBackends before_;
};

// Returns the cores on which the calling thread may run, in ascending order. Throws an Error on
// failure.
std::vector<int> allowed_cores();

// Binds the calling thread, and the threads and processes that it starts later, to `cores`. Returns
// errno, or 0 on success. Is safe to call between fork and exec.
int set_affinity(const std::vector<int>& cores);

}  // namespace zeroth
