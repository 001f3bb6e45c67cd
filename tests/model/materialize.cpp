#include "tests/model/materialize.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "model/hf/safetensors.h"

namespace zeroth::model {

using torch::Tensor;

Parameters materialize(const Blocks& blocks, WeightSource& source, torch::ScalarType dtype) {
  Parameters parameters;
  for (const auto& block : blocks) {
    for (const auto& item : block->named_parameters()) {
      const Tensor& parameter = item.value();
      if (!parameter.is_meta()) continue;  // tied and done
      const std::string name = block->label() + "." + item.key();
      const Tensor memory = torch::empty(
          parameter.sizes(), parameter.is_floating_point() ? dtype : parameter.scalar_type());
      source.check(name, parameter.sizes().vec());
      source.read({name, TensorSlice::full(parameter.sizes().vec())}, memory.view(-1));
      give_memory(parameter, memory);
      parameters[name] = parameter;
    }
  }
  return parameters;
}

void give_memory(const Tensor& parameter, const Tensor& memory) {
  parameter.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
}

Parameters randomise(const torch::nn::Module& module) {
  Parameters parameters;
  for (const auto& item : module.named_parameters()) {
    give_memory(item.value(), torch::randn(item.value().sizes()));
    parameters[item.key()] = item.value();
  }
  return parameters;
}

void define_main_grads(const Parameters& parameters, torch::ScalarType dtype) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.is_floating_point()) continue;  // codes and scales of NF4
    parameter.mutable_grad() = torch::zeros(parameter.sizes(), dtype);
  }
}

Tensor run(const Blocks& blocks, const MicroBatch& batch) {
  const torch::NoGradGuard no_grad;
  Tensor x;
  for (const auto& block : blocks) x = block->forward(x, batch);
  return x;
}

Tensor train(const Blocks& blocks, const MicroBatch& batch, double gradient) {
  std::vector<Tensor> inputs, outputs;
  Tensor x;
  for (const auto& block : blocks) {
    inputs.push_back(x.defined() ? x.detach().requires_grad_() : x);
    x = block->forward(inputs.back(), batch);
    outputs.push_back(x);
  }
  Tensor dy = torch::full({}, gradient);
  for (size_t i = blocks.size(); i-- > 0;) {
    if (outputs[i].requires_grad()) outputs[i].backward(dy);
    if (i > 0) dy = inputs[i].grad();
  }
  return x.detach();
}

std::string fixture(const std::string& name) {
  return fmt::format("{}/tests/model/fixtures/{}", ZEROTH_SOURCE_DIR, name);
}

std::map<std::string, Tensor> load_tensors(const std::string& path) {
  const SafetensorsFile file(path);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, stored] : file.tensors()) {
    const bool whole = stored.dtype == "I64";
    ZEROTH_CHECK(whole || stored.dtype == "F32", "{} is {}", name, stored.dtype);
    const Tensor tensor = torch::empty(stored.shape, whole ? torch::kInt64 : torch::kFloat32);
    const auto bytes = file.bytes(stored);
    if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    tensors[name] = tensor;
  }
  return tensors;
}

double difference(const Tensor& actual, const Tensor& expected) {
  const Tensor wide = expected.to(torch::kFloat64);
  const Tensor gap = (actual.to(torch::kFloat64) - wide).abs().max() / wide.abs().max();
  return gap.item<double>();
}

}  // namespace zeroth::model
