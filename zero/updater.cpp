#include "zero/updater.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "zero/dtype.h"

namespace zeroth::zero {
namespace {

using Step = configs::OffloadOptimizerConfig::Step;

// More than the caches of a processor hold.
constexpr int64_t kMeasured = int64_t{1} << 24;

double host_rate(const configs::Config& config, int64_t elements,
                 const offload::Together& together) {
  const torch::NoGradGuard no_grad;
  const auto rule = optim::make_update_rule(config.optimizer, torch::kCPU);
  const auto full = [&](torch::Dtype dtype, double value) {
    return at::full({elements}, value, torch::TensorOptions(torch::kCPU).dtype(dtype));
  };
  std::vector<torch::Tensor> states;
  for (size_t i = 0; i < rule->state_names().size(); ++i) {
    states.push_back(full(rule->state_dtype(), 1e-3));
  }
  const torch::Tensor working = full(dtype_of(config.precision), 1);
  const bool copies = has_master(config, *rule);
  const optim::UpdateRule::Range range = {
      .master = copies ? full(rule->master_dtype(), 1) : working,
      .grad = full(gradient_dtype(config), 1e-3),
      .states = states,
      .copy = copies ? working : torch::Tensor()};
  return offload::measure_rate(
      elements, [&] { rule->apply(range, optim::usual_step(config.optimizer, 1)); }, together);
}

offload::StepRates least_over_ranks(const offload::StepRates& rates, const comm::Mesh& mesh) {
  const torch::Tensor own = torch::tensor({rates.to_device_bytes_per_s, rates.to_host_bytes_per_s,
                                           rates.host_elements_per_s},
                                          torch::kDouble)
                                .to(mesh.device());
  mesh.data().all_reduce(own, comm::Reduce::kMin, "rates of link and host").wait();
  const torch::Tensor least = own.to(torch::kCPU);
  return {.to_device_bytes_per_s = least[0].item<double>(),
          .to_host_bytes_per_s = least[1].item<double>(),
          .host_elements_per_s = least[2].item<double>()};
}

}  // namespace

bool has_master(const configs::Config& config, const optim::UpdateRule& rule) {
  return rule.master_dtype() != dtype_of(config.precision);
}

offload::StepBytes bytes_per_element(const configs::Config& config) {
  const auto rule = optim::make_update_rule(config.optimizer, torch::kCPU);
  const auto size = [](torch::Dtype dtype) {
    return static_cast<int64_t>(c10::elementSize(dtype));
  };
  const bool copies = has_master(config, *rule);
  const bool rests = config.zero.offload_param.device != configs::RestingPlace::kDevice;
  const int64_t parameter = size(dtype_of(config.precision));
  const int64_t states =
      static_cast<int64_t>(rule->state_names().size()) * size(rule->state_dtype()) +
      (copies ? size(rule->master_dtype()) : 0);
  return {.parameter = parameter,
          .to_device = states + size(gradient_dtype(config)) + (rests && !copies ? parameter : 0),
          .to_host = states + (rests ? parameter : 0)};
}

bool updates_on_device(const configs::Config& config, const comm::Mesh& mesh,
                       device::HostLink& link, std::vector<std::string>& notes) {
  const Step step = config.zero.offload_optimizer.step;
  if (step != Step::kAuto) return step == Step::kGpu;
  const auto together = [&mesh] { comm::barrier(mesh); };
  offload::StepRates rates = offload::measure_link(link, mesh.device(), together);
  rates.host_elements_per_s = host_rate(config, kMeasured, together);
  const offload::StepChoice choice =
      offload::choose_step(least_over_ranks(rates, mesh), bytes_per_element(config));
  notes.push_back(choice.why);
  return choice.on_device;
}

}  // namespace zeroth::zero
