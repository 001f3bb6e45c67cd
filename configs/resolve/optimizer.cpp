#include <algorithm>

#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Kind = OptimizerConfig::Kind;

struct OptimizerType {
  std::string_view name;
  Kind kind;
  double lr, eps;          // defaults within a section
  std::string_view takes;  // keys of optimizer.params
  // For a type that compresses communication: the equivalent type without compression.
  std::string_view uncompressed = {};
};

constexpr std::string_view kAdamTakes =
    "lr bias_correction betas eps weight_decay adam_w_mode torch_adam set_grad_none";

// DeepSpeed's FusedAdam, FusedLion and FusedLamb, and torch.optim's SGD and Adagrad, which it
// accepts.
constexpr OptimizerType kTypes[] = {
    {"AdamW", Kind::kAdamW, 1e-3, 1e-8, kAdamTakes},
    {"Adam", Kind::kAdamW, 1e-3, 1e-8, kAdamTakes},
    {"Lion", Kind::kLion, 1e-3, 1e-8, "lr betas weight_decay set_grad_none"},
    {"SGD", Kind::kSgd, 1e-3, 1e-8,
     "lr momentum dampening weight_decay nesterov foreach fused differentiable"},
    {"Adagrad", Kind::kAdagrad, 1e-2, 1e-10,
     "lr lr_decay weight_decay initial_accumulator_value eps foreach fused differentiable"},
    {"Lamb", Kind::kLamb, 1e-3, 1e-8,
     "lr bias_correction betas eps eps_inside_sqrt weight_decay max_coeff min_coeff"},
    // DeepSpeed's types (to 0.19.6) compress only later in a run. Before that none of them corrects
    // its moments or uses an eps inside the root, whatever a file requests.
    {"OneBitAdam", Kind::kAdamW, 1e-3, 1e-8,
     "lr bias_correction betas eps eps_inside_sqrt weight_decay freeze_step cuda_aware "
     "comm_backend_name",
     "AdamW"},
    {"ZeroOneAdam", Kind::kAdamW, 1e-3, 1e-8,
     "lr bias_correction betas eps eps_inside_sqrt weight_decay var_freeze_step "
     "var_update_scaler local_step_scaler local_step_clipper cuda_aware comm_backend_name",
     "AdamW"},
    {"OneBitLamb", Kind::kLamb, 1e-3, 1e-8,
     "lr bias_correction betas eps eps_inside_sqrt weight_decay max_coeff min_coeff freeze_step "
     "cuda_aware comm_backend_name coeff_beta factor_max factor_min factor_threshold",
     "Lamb"},
};

// DeepSpeed's other optimizers, and those of torch.optim, each of which it accepts.
const TypeNames kUnsupported = {"Muon",     "MuAdam",  "MuAdamW", "MuSGD",     "Adafactor",
                                "Adadelta", "Adamax",  "ASGD",    "LBFGS",     "NAdam",
                                "RAdam",    "RMSprop", "Rprop",   "SparseAdam"};

bool takes(const OptimizerType& type, std::string_view name) {
  const auto names = split_values(type.takes, ' ');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the type in the file, or AdamW if there is no section or its type is unknown.
const OptimizerType& type_of(Context& context) {
  if (context.keys.values.count("optimizer") == 0) return kTypes[0];
  TypeNames names;
  for (const OptimizerType& type : kTypes) names.push_back(type.name);
  const auto name = parse_type(context, "optimizer.type", names, kUnsupported, true);
  if (!name) return kTypes[0];
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const OptimizerType& known) { return known.name == *name; });
  if (!type->uncompressed.empty() && !context.flags.accept_uncompressed) {
    context.suppressed.emplace_back("optimizer.params.");
    context.add_error(
        "optimizer.type: {} compresses communication, which is not supported; "
        "--accept-uncompressed runs it uncompressed: {} without bias correction",
        type->name, type->uncompressed);
    return kTypes[0];
  }
  check_params(context, "optimizer", type->name, type->takes);
  return *type;
}

// Fills a value from the file or the flag, otherwise keeps the struct's. Adds an error for a flag
// that the type does not accept.
template <typename T>
void fill(Context& context, const OptimizerType& type, std::string_view name,
          const std::optional<T>& flag, const char* flag_name, T& into) {
  if (takes(type, name)) {
    into = context.resolve_value(fmt::format("optimizer.params.{}", name), flag, flag_name)
               .value_or(into);
  } else if (flag) {
    context.add_error("{}: {} does not support {}", flag_name, type.name, name);
  }
}

void check_nesterov(Context& context, const OptimizerConfig& optimizer) {
  if (optimizer.nesterov && (optimizer.momentum == 0 || optimizer.dampening != 0)) {
    context.add_error(
        "optimizer.params.nesterov: needs momentum > 0 and dampening 0, found {} and {}",
        optimizer.momentum, optimizer.dampening);
  }
}

void leave_compression_out(Context& context, const OptimizerType& type,
                           OptimizerConfig& optimizer) {
  optimizer.bias_correction = false;
  optimizer.eps_inside_sqrt = false;
  warn(context.notes, "optimizer.type",
       "optimizer.type {} runs uncompressed (--accept-uncompressed): {} without bias correction",
       type.name, type.uncompressed);
}

}  // namespace

void fill_optimizer(Context& context, Config& config) {
  const FlagValues& flags = context.flags;
  const OptimizerType& type = type_of(context);
  OptimizerConfig& optimizer = config.optimizer;
  optimizer.kind = type.kind;
  optimizer.no_decay =
      flags.no_decay.value_or(defaults_for(flags).no_decay && !context.keys.has("optimizer"));
  if (type.name == "Adam" && context.keys.get<bool>("optimizer.params.adam_w_mode") == false) {
    optimizer.kind = Kind::kAdam;
  }
  // Without a section, and for "auto", the flag's default applies; within a section, DeepSpeed's.
  const bool by_flag =
      !context.keys.has("optimizer") || context.keys.is_auto("optimizer.params.lr");
  optimizer.lr = by_flag ? kDefaultLr : type.lr;
  optimizer.eps = type.eps;
  fill(context, type, "lr", flags.lr, "--lr", optimizer.lr);
  fill(context, type, "betas", flags.betas, "--betas", optimizer.betas);
  fill(context, type, "eps", flags.eps, "--eps", optimizer.eps);
  fill(context, type, "weight_decay", flags.weight_decay, "--weight-decay", optimizer.weight_decay);
  context.read("optimizer.params.momentum", optimizer.momentum);
  context.read("optimizer.params.dampening", optimizer.dampening);
  context.read("optimizer.params.nesterov", optimizer.nesterov);
  context.read("optimizer.params.lr_decay", optimizer.lr_decay);
  context.read("optimizer.params.initial_accumulator_value", optimizer.initial_accumulator_value);
  context.read("optimizer.params.bias_correction", optimizer.bias_correction);
  context.read("optimizer.params.eps_inside_sqrt", optimizer.eps_inside_sqrt);
  context.read("optimizer.params.max_coeff", optimizer.max_coeff);
  context.read("optimizer.params.min_coeff", optimizer.min_coeff);
  check_nesterov(context, optimizer);
  if (!type.uncompressed.empty()) leave_compression_out(context, type, optimizer);
}

}  // namespace zeroth::configs
