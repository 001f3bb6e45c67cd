#include <algorithm>
#include <utility>

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

constexpr std::string_view k8bitTakes = "lr bias_correction betas eps weight_decay min_8bit_size";

// DeepSpeed's FusedAdam, FusedLion and FusedLamb, torch.optim's SGD and Adagrad, which it accepts,
// and bitsandbytes' AdamW8bit, from which its Adam8bit differs in the default decay alone.
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
    {"AdamW8bit", Kind::kAdamW8bit, 1e-3, 1e-8, k8bitTakes},
    {"Adam8bit", Kind::kAdamW8bit, 1e-3, 1e-8, k8bitTakes},
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

// Returns the type in the file, that of --optim if there is no section, or AdamW if there is
// neither or the type is unknown.
const OptimizerType& type_of(Context& context) {
  if (context.keys.values.count("optimizer") == 0) {
    const std::string_view name = context.flags.optimizer.value_or(kTypes[0].name);
    return *std::ranges::find(kTypes, name, &OptimizerType::name);
  }
  TypeNames names;
  for (const OptimizerType& type : kTypes) names.push_back(type.name);
  const auto index = parse_type(context, "optimizer.type", names, kUnsupported, true);
  const OptimizerType& type = kTypes[index.value_or(0)];
  if (!index) return type;
  if (!type.uncompressed.empty() && !context.flags.accept_uncompressed) {
    context.suppressed.emplace_back("optimizer.params.");
    context.add_error(
        "optimizer.type: {} compresses communication, which is not supported; "
        "--accept-uncompressed runs it uncompressed: {} without bias correction",
        type.name, type.uncompressed);
    return kTypes[0];
  }
  check_params(context, "optimizer", type.name, type.takes);
  return type;
}

// Sets a value that the file does not have to the flag's, or to `usual` without a flag. Adds an
// error for a flag that the type does not accept.
template <typename T>
void apply_flag(Context& context, const OptimizerType& type, std::string_view name,
                const std::optional<T>& flag, Config& config,
                const std::optional<T>& usual = std::nullopt) {
  const ConfigKey& key = key_at(fmt::format("optimizer.params.{}", name));
  if (contains_value(type.takes, name, ' ')) {
    const auto value = context.resolve_value(std::string(key.path), flag);
    if (value || usual) key.field.set(value ? *value : *usual, config);
  } else if (flag) {
    context.add_error("{}: {} does not support {}", key.flag, type.name, name);
  }
}

void check_nesterov(Context& context) {
  const CheckedKeys& keys = context.keys;
  const double momentum = keys.get<double>("optimizer.params.momentum").value_or(0);
  const double dampening = keys.get<double>("optimizer.params.dampening").value_or(0);
  if (keys.get<bool>("optimizer.params.nesterov") == true && (momentum == 0 || dampening != 0)) {
    context.add_error(
        "optimizer.params.nesterov: needs momentum > 0 and dampening 0, found {} and {}", momentum,
        dampening);
  }
}

// Warns about a rate with which hardly anything trains, such as 2e5 instead of 2e-5.
void check_rates(Context& context, const Config& config) {
  const double max_rate = config.optimizer.kind == Kind::kSgd ? 100 : 1;
  const auto check = [&](std::string_view name, double rate) {
    if (!(rate > max_rate)) return;
    warn(context.notes, name,
         "{} {:g}: a learning rate above {:g} hardly ever trains; was a minus sign lost, as in 2e5 "
         "for 2e-5?",
         name, rate, max_rate);
  };
  check(context.key_or_flag("optimizer.params.lr"), config.optimizer.lr);
  for (const char* name :
       {"warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "lr_range_test_min_lr"}) {
    const std::string path = fmt::format("scheduler.params.{}", name);
    if (const auto rate = context.keys.get<double>(path)) check(path, *rate);
  }
}

}  // namespace

std::string_view optimizer_params(const Config& config) {
  const std::string_view name = to_string(config.optimizer.kind);
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](const OptimizerType& type) { return type.name == name; })
      ->takes;
}

std::string optimizer_text(const Config& config) {
  const auto param = [&](std::string_view name) {
    return value_of(config, fmt::format("optimizer.params.{}", name));
  };
  std::string text(to_string(config.optimizer.kind));
  std::string_view comma = "";
  for (const char* name : {"lr", "momentum", "betas", "eps"}) {
    if (!contains_value(optimizer_params(config), name, ' ')) continue;
    const auto value = param(name);
    text += fmt::format("{} {} ", std::exchange(comma, ","), name);
    text += value.is_array() ? fmt::format("{} {}", value[0].get<double>(), value[1].get<double>())
                             : fmt::format("{:g}", value.get<double>());
  }
  if (param("nesterov") == true) text += " (Nesterov)";
  if (param("bias_correction") == false) text += ", no bias correction";
  if (config.optimizer.kind == Kind::kLamb) {
    text += fmt::format(", ratios of norms from {:g} to {:g}", param("min_coeff").get<double>(),
                        param("max_coeff").get<double>());
  }
  return text;
}

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
  apply_flag(context, type, "lr", flags.lr, config, {by_flag ? kDefaultLr : type.lr});
  apply_flag(context, type, "betas", flags.betas, config);
  apply_flag(context, type, "eps", flags.eps, config, {type.eps});
  apply_flag(context, type, "weight_decay", flags.weight_decay, config);
  check_nesterov(context);
  if (type.uncompressed.empty()) return;
  optimizer.bias_correction = false;
  optimizer.eps_inside_sqrt = false;
  warn(context.notes, "optimizer.type",
       "optimizer.type {} runs uncompressed (--accept-uncompressed): {} without bias correction",
       type.name, type.uncompressed);
}

void check_optimizer(Context& context, const Config& config) {
  const std::string path = "optimizer.params.adam_w_mode";
  const auto type = context.keys.get<std::string>("optimizer.type");
  const bool decoupled = config.optimizer.kind == Kind::kAdamW;
  if (type && decoupled && context.keys.get<bool>(path) == false) {
    context.add_error("{}: false contradicts optimizer.type {}: write type Adam", path, *type);
  }
  check_rates(context, config);
}

}  // namespace zeroth::configs
