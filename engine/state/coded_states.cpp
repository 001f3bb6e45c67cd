// Loading of coded states, which may have been saved in other code blocks.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/state/run_state.h"
#include "engine/state/state_blocks.h"
#include "optim/coded_states.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

using optim::kernel::kCodeBlock;
using torch::Tensor;
using Array = zero::OptimizerStates::Array;

// Reads the maximum of the block, when it was saved, of each element of `part`.
Tensor read_maxima(StateSource& source, const zero::Slot& slot, const Array& maxima,
                   const zero::Range& part) {
  Tensor each = at::empty({part.size()}, torch::kFloat);
  StateSlice repeated = make_slice(slot, {maxima.name, maxima.dtype}, part);
  if (source.stores(repeated)) {
    source.read(repeated, each);
    return each;
  }
  StateSlice blocks = repeated;
  blocks.end = optim::kernel::code_blocks(slot.global.slice.tensor_elements());
  blocks.begin = 0;
  blocks.box = TensorSlice::full({blocks.end});
  const Tensor of_blocks = at::empty({blocks.end}, torch::kFloat);
  source.read(blocks, of_blocks);
  const auto* const from = of_blocks.const_data_ptr<float>();
  auto* to = each.mutable_data_ptr<float>();
  for (const SliceRows& rows :
       slice_rows(slot.global.slice, part.begin, part.size(), part.size())) {
    rows.for_each_run(0, rows.elements(), [&](int64_t, int64_t offset, int64_t size) {
      for (int64_t i = 0; i < size; ++i) *to++ = from[(offset + i) / kCodeBlock];
    });
  }
  return each;
}

// Sets the maximum of a block of codes, each of which had the maximum `each[i]`. Quantizes them
// anew, and returns true, unless these are equal.
bool regroup(uint8_t* codes, const float* each, int64_t count, bool is_signed, float& maximum) {
  maximum = each[0];
  if (std::all_of(each, each + count, [&](float other) { return other == maximum; })) return false;
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = optim::kernel::decode(codes[i], each[i], is_signed);
  }
  maximum = optim::kernel::encode(values.data(), count, codes, is_signed);
  return true;
}

// The two arrays of a coded state, or tensors of them.
template <typename T>
struct CodesAndMaxima {
  T codes, maxima;
};

// Reads codes and maxima of `part`, which begins a code block.
bool read_part(StateSource& source, const zero::Slot& slot, const zero::Range& part,
               const CodesAndMaxima<Array>& arrays, bool is_signed,
               const CodesAndMaxima<Tensor>& values) {
  source.read(make_slice(slot, arrays.codes, part), values.codes);
  const StateSlice own = make_slice(slot, arrays.maxima, part);
  if (!repeats_maxima(slot) && source.stores(own)) {
    source.read(own, values.maxima);
    return false;
  }
  const Tensor each = read_maxima(source, slot, arrays.maxima, part);
  bool requantized = false;
  for (int64_t begin = 0; begin < part.size(); begin += kCodeBlock) {
    requantized |=
        regroup(values.codes.mutable_data_ptr<uint8_t>() + begin,
                each.const_data_ptr<float>() + begin, std::min(kCodeBlock, part.size() - begin),
                is_signed, values.maxima.mutable_data_ptr<float>()[begin / kCodeBlock]);
  }
  return requantized;
}

}  // namespace

bool load_coded_states(const ShardedState& held, StateSource& source, size_t unit) {
  zero::OptimizerStates& states = held.optimizer.states();
  const zero::Range owned = held.plan.units[unit].owned_range();
  const std::vector<Array> all = states.arrays(unit);
  const size_t num_states = (all.size() - 1) / 2;  // after the master: codes, then maxima
  bool requantized = false;
  for (size_t k = 0; k < num_states; ++k) {
    const size_t code_index = 1 + k, maxima_index = 1 + num_states + k;
    const CodesAndMaxima<Array> arrays = {all[code_index], all[maxima_index]};
    ZEROTH_CHECK(arrays.codes.block == 1 && arrays.maxima.block == kCodeBlock,
                 "{} and {} in blocks", arrays.codes.name, arrays.maxima.name);
    const bool is_signed = optim::kernel::is_signed_state(k);
    // Padding is 0, too.
    const int64_t zero_code = is_signed ? int64_t{optim::kernel::CodeTables::kZeroCode} : 0;
    const CodesAndMaxima<Tensor> values = {
        at::full({owned.size()}, zero_code, arrays.codes.dtype),
        at::zeros({owned.size() / kCodeBlock}, arrays.maxima.dtype)};
    for_each_part(
        held.plan.units[unit], owned, [&](const zero::Slot& slot, const zero::Range& part) {
          const int64_t begin = slot.offset + part.begin - owned.begin;
          const int64_t blocks = optim::kernel::code_blocks(part.size());
          const bool anew = read_part(source, slot, part, arrays, is_signed,
                                      {values.codes.narrow(0, begin, part.size()),
                                       values.maxima.narrow(0, begin / kCodeBlock, blocks)});
          requantized = requantized || anew;
        });
    states.write(unit, code_index, values.codes);
    states.write(unit, maxima_index, values.maxima);
  }
  return requantized;
}

}  // namespace zeroth::engine
