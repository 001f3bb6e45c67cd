// Sources of models whose products have weights in NF4: parameters `X.weight`, `X.weight_absmax`
// and `X.weight_nested_absmax` (model/blocks/linear.h), which are read as bytes.
#pragma once

#include <filesystem>
#include <memory>

#include "device/tensor.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

// Quantizes the weights of `base`, a model without quantization, as they are read: they are rounded
// to `dtype` first. Reads and holds a few thousand weights at a time, and those of a slice only.
// With double quantization a scale depends on the whole weight, so that is read for any slice. A
// block is the same in every slice.
std::unique_ptr<WeightSource> make_nf4_source(const ModelSpec& spec,
                                              std::unique_ptr<WeightSource> base,
                                              torch::Dtype dtype);

// Reads the files of a model that bitsandbytes has quantized. check() throws a UsageError that
// names file and tensor if a weight is not in the form that config.json says, or in another than
// blocks of 64 in NF4.
std::unique_ptr<WeightSource> open_nf4_source(const std::filesystem::path& directory,
                                              const ModelSpec& spec);

// Returns a source of the model without quantization, whose weights are those of `source`, one of
// the above, dequantized to `dtype`. Its read() accepts full weights only.
std::unique_ptr<WeightSource> make_dequantized_source(const ModelSpec& spec,
                                                      std::unique_ptr<WeightSource> source,
                                                      torch::Dtype dtype);

}  // namespace zeroth::model
