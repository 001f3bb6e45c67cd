// Gives a chain of blocks memory on the CPU and runs it as the engine does: each block has a graph
// of its own.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/weight_source.h"

namespace zeroth::model {

using Sizes = std::vector<int64_t>;
using Parameters = std::map<std::string, torch::Tensor>;  // by canonical name, tied ones once

Parameters materialize(const Blocks& blocks, WeightSource& source,
                       torch::ScalarType dtype = torch::kFloat32);

// Replaces a meta parameter's memory, as the engine does.
void give_memory(const torch::Tensor& parameter, const torch::Tensor& memory);

// Gives every parameter of a module normally distributed memory; by the module's own names.
Parameters randomise(const torch::nn::Module& module);

// Defines zero gradients of `dtype` for every parameter, as the engine opens them.
void define_main_grads(const Parameters& parameters, torch::ScalarType dtype = torch::kFloat32);

// Loss, or logits where the batch has no targets; no graph.
torch::Tensor run(const Blocks& blocks, const MicroBatch& batch);

// Loss after forward and backward over all blocks.
torch::Tensor train(const Blocks& blocks, const MicroBatch& batch, double gradient = 1);

// A folder under tests/model/fixtures.
std::string fixture(const std::string& name);

// All tensors of a safetensors file, copied.
std::map<std::string, torch::Tensor> load_tensors(const std::string& path);

// The largest difference, relative to the largest expected magnitude.
double difference(const torch::Tensor& actual, const torch::Tensor& expected);

}  // namespace zeroth::model
