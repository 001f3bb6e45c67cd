#include "trainer/hf_output.h"

#include "base/error.h"

namespace zeroth::trainer {

void HfOutput::begin(const std::vector<engine::ParameterInfo>& parameters) {
  ZEROTH_CHECK(!parameters.empty(), "a model of {} parameters", parameters.size());
  std::vector<model::SavedParameter> saved;
  for (const engine::ParameterInfo& parameter : parameters) {
    saved.push_back({parameter.name, parameter.shape});
  }
  const model::WriterOptions options{.source = flags_.model,
                                     .output = flags_.output,
                                     .spec = spec_,
                                     .dtype = parameters.front().dtype,
                                     .overwrite = flags_.overwrite};
  writer_.emplace(options, saved);
}

void HfOutput::write(const std::string& name, const torch::Tensor& value) {
  writer_->write(name, value);
}

void HfOutput::finish() {
  if (writer_) writer_->commit();
}

}  // namespace zeroth::trainer
