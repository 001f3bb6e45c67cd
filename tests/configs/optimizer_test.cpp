#include "tests/configs/support.h"

namespace zeroth::configs::optimizer_test {
namespace {

using Kind = OptimizerConfig::Kind;

OptimizerConfig optimizer_of(const std::string& section, const FlagValues& flags = {}) {
  return config_of("{\"optimizer\": " + section + "}", flags).optimizer;
}

std::string optimizer_error(const std::string& section, const FlagValues& flags = {}) {
  return error_of("{\"optimizer\": " + section + "}", flags);
}

}  // namespace

TEST_CASE("without a section it is AdamW with the values of the flags") {
  const OptimizerConfig plain = config_of("{}").optimizer;
  CHECK(plain.kind == Kind::kAdamW);
  CHECK(plain.lr == 5e-5);
  CHECK(plain.weight_decay == 0);
  FlagValues flags;
  flags.lr = 1e-4;
  flags.weight_decay = 0.1;
  flags.betas = {0.8, 0.95};
  flags.eps = 1e-6;
  const OptimizerConfig given = config_of("{}", flags).optimizer;
  CHECK(given.lr == 1e-4);
  CHECK(given.weight_decay == 0.1);
  CHECK(given.betas == std::array{0.8, 0.95});
  CHECK(given.eps == 1e-6);
}

TEST_CASE("within a section, absent values are DeepSpeed's and auto values the flags'") {
  CHECK(optimizer_of(R"({"type": "AdamW"})").lr == 1e-3);
  CHECK(optimizer_of(R"({"type": "AdamW", "params": {"lr": "auto"}})").lr == 5e-5);
  FlagValues flags;
  flags.lr = 2e-5;
  CHECK(optimizer_of(R"({"type": "AdamW", "params": {"lr": "auto"}})", flags).lr == 2e-5);
  CHECK(optimizer_of(R"({"type": "AdamW"})", flags).lr == 2e-5);
}

TEST_CASE("Adam means AdamW unless adam_w_mode is false") {
  CHECK(optimizer_of(R"({"type": "Adam"})").kind == Kind::kAdamW);
  CHECK(optimizer_of(R"({"type": "adam", "params": {"adam_w_mode": true}})").kind == Kind::kAdamW);
  CHECK(optimizer_of(R"({"type": "ADAM", "params": {"adam_w_mode": false}})").kind == Kind::kAdam);
  CHECK(optimizer_of(R"({"type": "adamw"})").kind == Kind::kAdamW);
}

TEST_CASE("each optimizer has its own defaults, and takes its own parameters") {
  const OptimizerConfig lion = optimizer_of(R"({"type": "Lion"})");
  CHECK(lion.kind == Kind::kLion);
  CHECK(lion.lr == 1e-3);
  CHECK(lion.betas == std::array{0.9, 0.999});
  const OptimizerConfig adagrad = optimizer_of(R"({"type": "Adagrad", "params":
      {"lr_decay": 0.1, "initial_accumulator_value": 0.2}})");
  CHECK(adagrad.kind == Kind::kAdagrad);
  CHECK(adagrad.lr == 1e-2);
  CHECK(adagrad.eps == 1e-10);
  CHECK(adagrad.lr_decay == 0.1);
  CHECK(adagrad.initial_accumulator_value == 0.2);
  const OptimizerConfig sgd = optimizer_of(
      R"({"type": "SGD", "params": {"momentum": 0.9, "dampening": 0, "nesterov": true}})");
  CHECK(sgd.kind == Kind::kSgd);
  CHECK(sgd.lr == 1e-3);
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.nesterov);
  CHECK(optimizer_error(R"({"type": "SGD", "params": {"betas": [0.9, 0.99]}})") ==
        "test.json: optimizer.params.betas: not supported by SGD; supported: lr, momentum, "
        "dampening, weight_decay, nesterov, foreach, fused, differentiable");
  CHECK(optimizer_error(R"({"type": "AdamW", "params": {"momentum": 0.9}})")
            .find("optimizer.params.momentum: not supported by AdamW") != std::string::npos);
  FlagValues flags;
  flags.eps = 1e-6;
  CHECK(optimizer_error(R"({"type": "Lion"})", flags) ==
        "test.json: --eps: Lion does not support eps");
}

TEST_CASE("Lamb is DeepSpeed's FusedLamb with its defaults") {
  const OptimizerConfig plain = optimizer_of(R"({"type": "Lamb"})");
  CHECK(plain.kind == Kind::kLamb);
  CHECK(plain.lr == 1e-3);
  CHECK(plain.betas == std::array{0.9, 0.999});
  CHECK(plain.eps == 1e-8);
  CHECK(plain.weight_decay == 0);
  CHECK(plain.bias_correction);
  CHECK_FALSE(plain.eps_inside_sqrt);
  CHECK(plain.max_coeff == 10);
  CHECK(plain.min_coeff == 0.01);
  const OptimizerConfig given = optimizer_of(R"({"type": "lamb", "params": {"lr": 11e-3,
      "weight_decay": 0.01, "bias_correction": false, "eps_inside_sqrt": true, "amsgrad": false,
      "max_coeff": 0.3, "min_coeff": 0.02}})");
  CHECK(given.lr == 11e-3);
  CHECK_FALSE(given.bias_correction);
  CHECK(given.eps_inside_sqrt);
  CHECK(given.max_coeff == 0.3);
  CHECK(given.min_coeff == 0.02);
  CHECK(optimizer_error(R"({"type": "AdamW", "params": {"max_coeff": 1}})")
            .find("optimizer.params.max_coeff: not supported by AdamW") != std::string::npos);
  CHECK(error_of(R"({"optimizer": {"type": "Lamb"}, "bf16": {"enabled": true,
                 "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 1,
                 "offload_optimizer": {"device": "cpu"}}})") ==
        "test.json: bf16.bf16_master_weights_and_grads: true needs optimizer.type other than "
        "Lamb and AdamW8bit, found Lamb");
}

TEST_CASE("AdamW8bit and Adam8bit are bitsandbytes' with their parameters") {
  for (const char* type : {"AdamW8bit", "adamw8bit", "Adam8bit"}) {
    const OptimizerConfig plain = optimizer_of(fmt::format(R"({{"type": "{}"}})", type));
    CHECK(plain.kind == Kind::kAdamW8bit);
    CHECK(plain.lr == 1e-3);
    CHECK(plain.betas == std::array{0.9, 0.999});
    CHECK(plain.eps == 1e-8);
    CHECK(plain.weight_decay == 0);
    CHECK(plain.min_8bit_size == 4096);
  }
  const OptimizerConfig given = optimizer_of(R"({"type": "AdamW8bit", "params": {"lr": 1e-4,
      "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.01, "min_8bit_size": 0}})");
  CHECK(given.lr == 1e-4);
  CHECK(given.weight_decay == 0.01);
  CHECK(given.min_8bit_size == 0);
  CHECK(optimizer_error(R"({"type": "AdamW8bit", "params": {"adam_w_mode": false}})")
            .find("optimizer.params.adam_w_mode: not supported by AdamW8bit") != std::string::npos);
  CHECK(optimizer_error(R"({"type": "AdamW", "params": {"min_8bit_size": 1}})")
            .find("optimizer.params.min_8bit_size: not supported by AdamW") != std::string::npos);
  CHECK(error_of(R"({"optimizer": {"type": "Adam8bit"}, "bf16": {"enabled": true,
                 "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 1,
                 "offload_optimizer": {"device": "cpu"}}})") ==
        "test.json: bf16.bf16_master_weights_and_grads: true needs optimizer.type other than "
        "Lamb and AdamW8bit, found AdamW8bit");
}

TEST_CASE("--optim selects the optimizer unless the file has one") {
  FlagValues flags;
  flags.optimizer = "AdamW8bit";
  CHECK(config_of("{}", flags).optimizer.kind == Kind::kAdamW8bit);
  CHECK(config_of(R"({"optimizer": {"type": "SGD"}})", flags).optimizer.kind == Kind::kSgd);
  flags.optimizer = "Adagrad";
  CHECK(config_of("{}", flags).optimizer.eps == 1e-10);
}

TEST_CASE("the moments of Adam and AdamW are corrected unless bias_correction is false") {
  for (const char* type : {"Adam", "AdamW"}) {
    const auto section = [&](const char* params) {
      return optimizer_of(fmt::format(R"({{"type": "{}", "params": {{{}}}}})", type, params));
    };
    CHECK(section("").bias_correction);
    CHECK_FALSE(section(R"("bias_correction": false)").bias_correction);
    CHECK(section(R"("bias_correction": "auto")").bias_correction);
  }
  CHECK(optimizer_error(R"({"type": "Lion", "params": {"bias_correction": false}})")
            .find("optimizer.params.bias_correction: not supported by Lion") != std::string::npos);
}

TEST_CASE("1-bit optimizers run uncompressed, and only where that is accepted") {
  struct Case {
    const char* name;
    const char* without;
    Kind kind;
  };
  FlagValues flags;
  flags.accept_uncompressed = true;
  for (const auto& [name, without, kind] : {Case{"OneBitAdam", "AdamW", Kind::kAdamW},
                                            {"ZeroOneAdam", "AdamW", Kind::kAdamW},
                                            {"OneBitLamb", "Lamb", Kind::kLamb}}) {
    const std::string section = fmt::format(
        R"({{"type": "{}", "params": {{"lr": 2e-4, "weight_decay": 0.01, "bias_correction": true,
           "eps_inside_sqrt": true, "cuda_aware": true, "comm_backend_name": "nccl"}}}})",
        name);
    CHECK(optimizer_error(section) ==
          fmt::format("test.json: optimizer.type: {} compresses communication, which is not "
                      "supported; --accept-uncompressed runs it uncompressed: {} without "
                      "bias correction",
                      name, without));
    const Resolved resolved = resolve_text("{\"optimizer\": " + section + "}", flags);
    const OptimizerConfig& optimizer = resolved.config.optimizer;
    CHECK(optimizer.kind == kind);
    CHECK(optimizer.lr == 2e-4);
    CHECK(optimizer.weight_decay == 0.01);
    CHECK_FALSE(optimizer.bias_correction);
    CHECK_FALSE(optimizer.eps_inside_sqrt);
    CHECK(warnings_of(resolved) == std::vector<std::string>{fmt::format(
                                       "optimizer.type {} runs uncompressed "
                                       "(--accept-uncompressed): {} without bias correction",
                                       name, without)});
    CHECK(has_note(resolved,
                   "optimizer.params.cuda_aware true has no effect: concerns compression, which is "
                   "not supported"));
  }
  CHECK(optimizer_of(R"({"type": "onebitadam", "params": {"freeze_step": 400}})", flags).kind ==
        Kind::kAdamW);
  CHECK(optimizer_of(R"({"type": "ZeroOneAdam", "params": {"var_freeze_step": 1000,
      "var_update_scaler": 16, "local_step_scaler": 1000, "local_step_clipper": 16}})",
                     flags)
            .kind == Kind::kAdamW);
  CHECK(optimizer_of(R"({"type": "OneBitLamb", "params": {"freeze_step": 1000, "max_coeff": 0.3,
      "min_coeff": 0.02, "coeff_beta": 0.9, "factor_max": 4.0, "factor_min": 0.5,
      "factor_threshold": 0.1}})",
                     flags)
            .max_coeff == 0.3);
  CHECK(optimizer_error(R"({"type": "AdamW", "params": {"freeze_step": 400}})", flags)
            .find("optimizer.params.freeze_step: not supported by AdamW") != std::string::npos);
}

TEST_CASE("nesterov needs a momentum without dampening, as in PyTorch") {
  CHECK(optimizer_error(R"({"type": "SGD", "params": {"nesterov": true}})") ==
        "test.json: optimizer.params.nesterov: needs momentum > 0 and dampening 0, found 0 and 0");
}

TEST_CASE("other optimizers are refused by name, without a word on their parameters") {
  CHECK(optimizer_error(R"({"type": "Muon", "params": {"momentum": 0.95}})") ==
        "test.json: optimizer.type: Muon is not supported yet; one of AdamW, Adam, Lion, SGD, "
        "Adagrad, Lamb, AdamW8bit, Adam8bit, OneBitAdam, ZeroOneAdam, OneBitLamb");
  CHECK(optimizer_error(R"({"type": "AdamV"})") ==
        "test.json: optimizer.type: unknown type \"AdamV\"; did you mean AdamW?");
  CHECK(optimizer_error(R"({"params": {"lr": 1e-3}})") ==
        "test.json: optimizer.type: missing; one of AdamW, Adam, Lion, SGD, Adagrad, Lamb, "
        "AdamW8bit, Adam8bit, OneBitAdam, ZeroOneAdam, OneBitLamb");
}

TEST_CASE("parameters that would change the update are refused by name") {
  CHECK(optimizer_error(R"({"type": "Adam", "params": {"amsgrad": true}})")
            .find("optimizer.params.amsgrad: true is refused") != std::string::npos);
}

TEST_CASE("a flag that disagrees with the file is an error for each pair") {
  FlagValues flags;
  flags.lr = 5e-5;
  flags.betas = {0.9, 0.95};
  const std::string error =
      optimizer_error(R"({"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}})", flags);
  CHECK(error.find("optimizer.params.lr: 0.001 in the file, but --lr 5e-05") != std::string::npos);
  CHECK(error.find("optimizer.params.betas: [0.9,0.999] in the file, but --betas [0.9,0.95]") !=
        std::string::npos);
}

}  // namespace zeroth::configs::optimizer_test
