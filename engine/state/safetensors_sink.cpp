#include "engine/state/safetensors_sink.h"

#include "base/error.h"

namespace zeroth::engine {

void SafetensorsSink::begin(const std::vector<ParameterInfo>& parameters) {
  ZEROTH_CHECK(!parameters.empty(), "a model without parameters is saved to {}", dir_.string());
  std::vector<model::PlannedTensor> planned;
  for (const ParameterInfo& info : parameters) planned.push_back({info.name, info.shape});
  model::OutputDirectory::clear_leftovers(dir_);
  model::OutputDirectory::check(dir_, /*overwrite=*/false);
  directory_.emplace(dir_, /*overwrite=*/false);
  writer_.emplace(directory_->path() / "model.safetensors", parameters.front().dtype, planned);
}

void SafetensorsSink::write(const std::string& name, const torch::Tensor& value) {
  model::require_finite(dir_, name, value);
  writer_->write(name, value);
}

void SafetensorsSink::commit() {
  writer_->finish();
  writer_.reset();
  directory_->commit();
}

}  // namespace zeroth::engine
