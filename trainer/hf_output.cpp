#include "trainer/hf_output.h"

#include "base/error.h"

namespace zeroth::trainer {

template <typename Action>
void HfOutput::unless_failed(Action action) {
  if (failure_) return;
  try {
    model::naming_errors(action);
  } catch (const Error& error) {
    failure_ = error.what();
    writer_.reset();  // and its temporary folder
  }
}

void HfOutput::begin(const std::vector<engine::ParameterInfo>& parameters) {
  ZEROTH_CHECK(!parameters.empty(), "a model of {} parameters", parameters.size());
  std::vector<model::SavedParameter> saved;
  for (const engine::ParameterInfo& parameter : parameters) {
    saved.push_back({parameter.name, parameter.shape});
  }
  options_.dtype = dtype_.value_or(parameters.front().dtype);
  unless_failed([&] { writer_.emplace(options_, saved); });
}

void HfOutput::write(const std::string& name, const torch::Tensor& value) {
  unless_failed([&] { writer_->write(name, value); });
}

std::optional<std::string> HfOutput::finish() {
  unless_failed([&] {
    if (writer_) former_ = writer_->commit();
  });
  return failure_;
}

}  // namespace zeroth::trainer
