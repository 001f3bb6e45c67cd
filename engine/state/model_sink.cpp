#include "engine/state/model_sink.h"

#include "base/error.h"

namespace zeroth::engine {

void SafetensorsSink::begin(const std::vector<model::PlannedTensor>& parameters,
                            torch::Dtype dtype) {
  ZEROTH_CHECK(!parameters.empty(), "a model without parameters is saved to {}", dir_.string());
  model::OutputDirectory::cleanup_leftovers(dir_);
  model::OutputDirectory::check(dir_, /*overwrite=*/false);
  directory_.emplace(dir_, /*overwrite=*/false);
  writer_.emplace(directory_->path() / "model.safetensors", dtype, parameters);
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
