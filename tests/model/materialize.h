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

// The models among these folders that tests compare with transformers.
inline constexpr const char* kFixtures[] = {"llama",
                                            "llama_old_keys",
                                            "llama_llama3",
                                            "llama_linear",
                                            "llama_dynamic",
                                            "llama_bf16",
                                            "llama_fp16_sharded",
                                            "llama_head_dim",
                                            "qwen2",
                                            "qwen2_window",
                                            "qwen3_tied",
                                            "mistral_window",
                                            "gpt2",
                                            "gpt2_no_prefix",
                                            "llama_yarn",
                                            "llama_longrope",
                                            "gpt2_layer_scale",
                                            "llama_pad",
                                            "mistral_pad_from_end",
                                            "qwen2_pad",
                                            "qwen3_pad_tied",
                                            "gpt2_pad",
                                            "llama_nf4",
                                            "llama_nf4_double",
                                            "ministral",
                                            "seed_oss",
                                            "starcoder2",
                                            "helium",
                                            "ernie4_5",
                                            "granite",
                                            "arcee",
                                            "smollm3",
                                            "phi",
                                            "phi3",
                                            "glm",
                                            "glm4",
                                            "stablelm",
                                            "gpt_neox",
                                            "gpt_neox_sequential",
                                            "gptj",
                                            "falcon_7b",
                                            "falcon_40b",
                                            "cohere",
                                            "cohere2",
                                            "gemma",
                                            "gemma2",
                                            "gemma3_text",
                                            "nemotron",
                                            "olmo",
                                            "olmo2",
                                            "olmo3",
                                            "exaone4",
                                            "opt",
                                            "ministral3",
                                            "hunyuan_v1_dense",
                                            "stablelm_12b",
                                            "granite4",
                                            "mixtral",
                                            "qwen2_moe",
                                            "qwen3_moe",
                                            "olmoe",
                                            "granitemoe",
                                            "gpt_oss",
                                            "glm4_moe",
                                            "ernie4_5_moe",
                                            "llama4_text",
                                            "deepseek_v2",
                                            "deepseek_v3",
                                            "mistral3",
                                            "qwen3_next",
                                            "qwen3_5_text",
                                            "qwen3_5",
                                            "qwen3_5_moe_text",
                                            "bloom",
                                            "mpt",
                                            "falcon_rw",
                                            "apertus",
                                            "lfm2",
                                            "gpt_bigcode",
                                            "gpt_bigcode_heads",
                                            "minicpm3",
                                            "gemma4_text",
                                            "gemma4_moe"};

// All tensors of a safetensors file, copied.
std::map<std::string, torch::Tensor> load_tensors(const std::string& path);

// The largest difference, relative to the largest expected magnitude.
double difference(const torch::Tensor& actual, const torch::Tensor& expected);

}  // namespace zeroth::model
