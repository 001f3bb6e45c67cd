// What the layers of one chain compute once for the sequences of a micro-batch: angles of rotary
// embeddings, masks and offsets of samples.
#pragma once

#include <cstdint>
#include <map>

#include "device/tensor.h"
#include "model/blocks/micro_batch_cache.h"
#include "model/blocks/rope.h"
#include "model/kernels/attention_kernels.h"
#include "model/micro_batch.h"
#include "model/spec.h"

namespace zeroth::model {

// A `WindowMask` computes the additive mask of a window. It caches the last one without first_keys
// and that of each micro-batch in flight. Not thread-safe.
class WindowMask {
 public:
  // `window` is the number of tokens that a token sees, itself included; 0 means all before it.
  explicit WindowMask(int64_t window) : window_(window) {}

  // Returns the mask [seq, seq], or [batch, seq, seq] with first_keys: 0 where a row sees a column,
  // -inf elsewhere, in the dtype and on the device of `like`. All layers pass the same first_keys
  // of a micro-batch, whose values must not change.
  torch::Tensor get(int64_t seq, const torch::Tensor& like, const torch::Tensor& first_keys = {});

 private:
  torch::Tensor mask(int64_t seq, const torch::Tensor& like, const torch::Tensor& first_keys) const;

  int64_t window_;
  torch::Tensor cached_;
  MicroBatchCache<torch::Tensor> of_first_keys_;
};

// SampleOffsets computes the offsets of packed samples, once for each micro-batch in flight. Not
// thread-safe.
class SampleOffsets {
 public:
  // All layers pass the same first_keys of a micro-batch, whose values must not change.
  const CuSeqlens& get(const torch::Tensor& first_keys, torch::Device device);

 private:
  MicroBatchCache<CuSeqlens> of_first_keys_;
};

// DeviceFirstKeys copies first keys to a device, once for each micro-batch in flight. Not
// thread-safe.
class DeviceFirstKeys {
 public:
  // All layers pass the same first_keys of a micro-batch; undefined ones stay so.
  torch::Tensor get(const torch::Tensor& first_keys, torch::Device device);

 private:
  MicroBatchCache<torch::Tensor> of_first_keys_;
};

// ChunkStarts computes the first token that each token may see where it sees those of its chunk of
// positions, once for each micro-batch in flight. Not thread-safe.
class ChunkStarts {
 public:
  // Returns [batch, seq] int64 on the CPU, not before the batch's first_keys.
  torch::Tensor get(const MicroBatch& batch, int64_t chunk);

 private:
  torch::Tensor cached_;
  MicroBatchCache<torch::Tensor> of_first_keys_;
};

// SequenceTables holds the position tables, masks and offsets that the layers of one chain share.
struct SequenceTables {
  explicit SequenceTables(const ModelSpec& spec)
      : rope(spec.rope, spec.head_dim, spec.max_positions),
        local_rope(spec.local_rope, spec.head_dim, spec.max_positions) {}

  WindowMask& mask(int64_t window) { return masks.try_emplace(window, window).first->second; }

  RopeTable rope, local_rope;
  std::map<int64_t, WindowMask> masks;  // by their windows
  SampleOffsets samples, chunk_samples;
  DeviceFirstKeys first_keys;
  ChunkStarts chunks;
};

}  // namespace zeroth::model
