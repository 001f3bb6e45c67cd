#include "trainer/hf_requests.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/units.h"
#include "model/hf/model_directory.h"
#include "trainer/report/summary.h"

namespace zeroth::trainer {
namespace {

// A description of what the run does, which ends the flag's text; unset if the request is
// fulfilled.
using Mismatch = std::optional<std::string>;

bool equals_ignoring_case(const std::string& value, const char* word) {
  return ::strcasecmp(value.c_str(), word) == 0;
}

Mismatch check_precision(const RunPlan& plan, configs::Precision requested, const char* flag) {
  if (plan.config.precision == requested) return std::nullopt;
  return fmt::format("{}; {} sets both", precision_line(plan.config, /*trains=*/false), flag);
}

Mismatch full_bf16(const RunPlan& plan, const std::string& /*value*/) {
  return check_precision(plan, configs::Precision::kBf16, "--bf16");
}

Mismatch full_fp16(const RunPlan& plan, const std::string& /*value*/) {
  return check_precision(plan, configs::Precision::kFp16, "--fp16");
}

Mismatch data_seed(const RunPlan& plan, const std::string& value) {
  if (parse_number<uint64_t>(value) == plan.config.seed) return std::nullopt;
  return fmt::format("{}", plan.config.seed);
}

Mismatch same_model_directory(const RunPlan& plan, const std::string& value) {
  try {
    std::error_code unknown;
    const auto directory = model::find_model_directory(value);
    if (std::filesystem::equivalent(directory, plan.flags.model, unknown)) return std::nullopt;
  } catch (const Error&) {
    // The value names another directory.
  }
  return plan.flags.model;
}

// Fulfilled with evaluation data: run_clm.py splits the training data only without it.
Mismatch split(const RunPlan& plan, const std::string& /*value*/) {
  if (!plan.flags.eval_data.empty()) return std::nullopt;
  return "";
}

// Fulfilled without text files: for run_clm.py line breaks only matter in those.
Mismatch joined_lines(const RunPlan& plan, const std::string& /*value*/) {
  const auto is_text = [](const std::string& path) { return path.ends_with(".txt"); };
  if (!is_text(plan.flags.data) && !is_text(plan.flags.eval_data)) return std::nullopt;
  return "";
}

Mismatch optimizer(const RunPlan& plan, const std::string& value) {
  using Kind = configs::OptimizerConfig::Kind;
  const Kind requested = equals_ignoring_case(value, "sgd")       ? Kind::kSgd
                         : equals_ignoring_case(value, "adagrad") ? Kind::kAdagrad
                                                                  : Kind::kLion;
  if (plan.config.optimizer.kind == requested) return std::nullopt;
  const std::string line = optimizer_line(plan.config, {});
  return fmt::format("; here it is {}", line.substr(0, line.find(' ')));
}

// Fulfilled if the means are equal: with one rank, or if a micro-batch is all that a rank has.
Mismatch means_of_ranks(const RunPlan& plan, const std::string& /*value*/) {
  const bool of_micro_batches = plan.config.loss_mean == configs::LossMean::kMicroBatch;
  const bool one_micro_batch = plan.config.batch.accumulation_steps == 1;
  if (plan.data_parallel_size() == 1 || (of_micro_batches && one_micro_batch)) return std::nullopt;
  return fmt::format("{}; --loss-mean micro-batch takes the mean of means",
                     plan.data_parallel_size());
}

Mismatch order(const RunPlan& plan, const std::string& value) {
  if (equals_ignoring_case(value, "random") == plan.flags.shuffle) return std::nullopt;
  return plan.flags.shuffle ? "; here they are shuffled" : "; here they are not shuffled";
}

constexpr std::pair<std::string_view, Mismatch (*)(const RunPlan&, const std::string&)> kChecks[] =
    {{"bf16_full_eval", full_bf16},
     {"fp16_full_eval", full_fp16},
     {"data_seed", data_seed},
     {"tokenizer_name", same_model_directory},
     {"config_name", same_model_directory},
     {"validation_split_percentage", split},
     {"keep_linebreaks", joined_lines},
     {"optim", optimizer},
     {"average_tokens_across_devices", means_of_ranks},
     {"train_sampling_strategy", order}};

}  // namespace

void check_hf_requests(const RunPlan& plan) {
  std::vector<std::string> errors;
  for (const HfRequest& request : plan.flags.hf_requests) {
    const auto check = std::find_if(std::begin(kChecks), std::end(kChecks), [&](const auto& one) {
      return one.first == request.flag->name;
    });
    ZEROTH_CHECK(check != std::end(kChecks), "no check compares {}", request.flag->name);
    const Mismatch done = check->second(plan, request.value);
    if (done) errors.push_back(request.refusal() + *done);
  }
  if (!errors.empty()) throw Error("{}", listed(errors));
}

}  // namespace zeroth::trainer
