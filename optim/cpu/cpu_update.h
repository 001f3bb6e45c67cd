// Optimizer steps on plain arrays in CPU memory, in one pass: it reads the gradient, updates master
// and moments, and writes the working precision. This header includes no torch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/machine/cpu.h"
#include "configs/config.h"
#include "optim/cpu/cpu_kernels.h"
#include "optim/element_offsets.h"
#include "optim/update_constants.h"
#include "optim/update_step.h"

namespace zeroth::optim {

// A CpuChunk holds arrays of `count` elements each that do not overlap, aligned as their elements
// are. Kernels are fastest if all begin at multiples of 64 bytes.
struct CpuChunk {
  int64_t count = 0;
  void* master = nullptr;                             // fp32, or bf16 if the configuration says so
  std::array<void*, kernel::kMaxStates> states = {};  // like master; of UpdateRule::state_names()
  // Of AdamW8bit, whose states are codes: one for each kernel::kCodeBlock elements.
  std::array<float*, kernel::kMaxStates> maxima = {};
  const void* grad = nullptr;  // read only
  kernel::Format grad_format = kernel::kFp32;
  void* copy = nullptr;  // receives the new master, rounded to nearest even; null: no copy
  kernel::Format copy_format = kernel::kBf16;  // kBf16 or kFp16
  // Global offset of the first element in the model, or, if `offsets` are given, its index among
  // the elements that they count. Both are read only if bf16 is rounded.
  int64_t first_element = 0;
  std::span<const OffsetSpan> offsets = {};
};

// CpuUpdate computes the formulas of optim/tensor_rules.cpp, all in fp32: fma(a, b, c)
// rounds a * b + c once, every other operation rounds by itself, and constants are computed in fp64
// and rounded to fp32. g = wire gradient / fp32(1 / grad_factor), or times grad_factor if that is
// no normal number.
//   AdamW, Adam  Adam: g = fma(p, decay, g); AdamW: p = p * (1 - lr * decay)
//                w = 1 - beta1:  m = fma(w, g - m, m), from w = 0.5 on fma(w - 1, g - m, g)
//                v = fma((1 - beta2) * g, g, v * beta2)
//                p = p + -(lr / (1 - beta1^n)) * m / (sqrt(v) / sqrt(1 - beta2^n) + eps)
//   AdamW8bit    m, v = value of the code * maximum of its block (optim/coded_states.h)
//                m = fma(1 - beta1, g, m * beta1),  v = fma((1 - beta2) * g, g, v * beta2)
//                p = p * (1 - lr * decay), then like Adam; m and v become the nearest codes
//   Lion         wire gradient r, factor f:  c = fma(r, (1 - beta1) * f, m * beta1)
//                p = p * (1 - lr * decay) - copysign(lr, c)
//                m = fma(r, (1 - beta2) * f, m * beta2)
//   Adagrad      g = fma(p, decay, g);  s = fma(g, g, s)
//                p = p - lr / (1 + (n - 1) * lr_decay) * g / (sqrt(s) + eps)
//   SGD          g = fma(p, decay, g);  b = fma(g, 1 - dampening, b * momentum), g in update 1
//                p = fma(d, -lr, p), d = b, with Nesterov fma(b, momentum, g), without momentum g
// These are the operations, in their order, of LibTorch's kernels for AVX2
// (aten/src/ATen/native/cpu/Fused{Adam,Adagrad,SGD}Kernel.cpp as gcc contracts them in LibTorch
// 2.11) and of optim/tensor_rules.cpp. On a processor with AVX2 both give the same bits, except in
// the last count % UpdateRule::kChunkAlignment elements, which LibTorch may round differently.
//
// Masters, and with them states, may be stored in bf16 (OptimizerConfig::bf16_masters, bf16_states;
// not with fp16 gradients, and without a copy: such a master is the working weight). They are
// widened, updated as above and rounded stochastically, to the neighbor larger in magnitude with
// the probability that keeps the mean. Random bits are a hash of UpdateStep::rounding_seed, the
// update's number, the array and the element's global offset in the model: not of time, ranks or
// chunks. An update reads the moments as they are before that rounding. Values that bf16 holds
// exactly, infinities too, stay.
//
// AdamW8bit is bitsandbytes' AdamW8bit, with its bits on the CPU except that the nearest code is
// exact: bitsandbytes takes it from a table of 65,536 magnitudes there. A chunk's first element
// begins a code block. An element's bits depend on its block alone.
//
// Bits of other formulas depend on the element alone: not on chunks, threads or the level, NaN
// payloads aside. Values of the gradient that are not finite reach master, states and copy as the
// formula says.
class CpuUpdate {
 public:
  // `level` selects the loops that run and must not exceed the processor's; all give the same bits.
  explicit CpuUpdate(const configs::OptimizerConfig& config, CpuIsa level = cpu_isa());

  // Blocks until done; large chunks are split over the threads of base/machine/parallel.h. Several
  // threads may update different chunks at the same time. Throws an InternalError for a chunk or a
  // step that would corrupt the weights.
  void apply(const CpuChunk& chunk, const UpdateStep& step) const;

 private:
  configs::OptimizerConfig config_;
  const kernel::UpdateKernels& kernels_;
};

// Returns the loops for `level`, which must not exceed the processor's.
const kernel::CpuKernels& select_kernels(CpuIsa level);

}  // namespace zeroth::optim
