
#include <set>

#include "tests/configs/support.h"

namespace zeroth::configs::print_test {
namespace {

LoraConfig unusual_lora() {
  return {.enabled = true,
          .r = 2,
          .alpha = 0.5,
          .use_rslora = true,
          .dropout = 0.25,
          .target_modules = {.names = {"k_proj", "q_proj"}},
          .exclude_modules = {.pattern = "model\\.layers\\.0\\..*"},
          .layers_to_transform = {1, 0},
          .layers_pattern = {"layers"},
          .rank_pattern = {{"q\"_proj", 3}, {"\\d+", 4}},
          .alpha_pattern = {{"a.b", 1.5}},
          .modules_to_save = {"lm_head"},
          .bias = LoraConfig::Bias::kLoraOnly,
          .init = LoraConfig::Init::kGaussian};
}

// Every field away from its default, as far as the scheduler's kind allows.
Config unusual(SchedulerConfig::Kind kind) {
  Config config;
  config.batch = {.train_batch_size = 24, .micro_batch_size = 3, .accumulation_steps = 4};
  config.precision = Precision::kFp16;
  config.loss_scale = {.static_scale = 2,
                       .initial_scale_power = 9,
                       .window = 10,
                       .hysteresis = 3,
                       .consecutive_hysteresis = true,
                       .min_scale = 4};
  config.gradient_clipping = 0.3;
  config.optimizer = {.kind = OptimizerConfig::Kind::kAdam,
                      .lr = 2e-4,
                      .betas = {0.8, 0.9},
                      .eps = 1e-7,
                      .weight_decay = 0.1};
  config.scheduler.kind = kind;
  config.scheduler.warmup_num_steps = 5;
  config.scheduler.warmup_type = SchedulerConfig::Warmup::kLinear;
  if (kind != SchedulerConfig::Kind::kWarmupLr) config.scheduler.total_num_steps = 50;
  if (kind == SchedulerConfig::Kind::kWarmupCosineLr) {
    config.scheduler.warmup_min_ratio = 0.1;
    config.scheduler.cos_min_ratio = 0.2;
  } else {
    config.scheduler.warmup_min_lr = 1e-6;
    config.scheduler.warmup_max_lr = 3e-4;
  }
  config.zero = {.stage = 3,
                 .reduce_bucket_elements = 11,
                 .allgather_bucket_elements = 12,
                 .prefetch_bucket_elements = 13,
                 .param_persistence_threshold_elements = 14,
                 .max_live_elements = 15,
                 .overlap_comm = false,
                 .overlap_step = true,
                 .offload_optimizer = {.device = OffloadDevice::kNvme,
                                       .nvme_path = "/fast",
                                       .pin_memory = false,
                                       .buffer_count = 2,
                                       .pipeline_read = false,
                                       .ratio = 0.25,
                                       .step = OffloadOptimizerConfig::UpdateDevice::kGpu},
                 .offload_param = {.device = OffloadDevice::kNvme,
                                   .nvme_path = "/faster",
                                   .pin_memory = false,
                                   .buffer_count = 6,
                                   .buffer_size_elements = 16,
                                   .max_in_cpu_elements = 17}};
  config.tensor_parallel = {.overlap_comm = true};  // split layers have no adapters
  config.lora = unusual_lora();
  config.quantization = {.nf4_weights = true, .nested_scales = true};
  config.aio = {.block_size = 8192, .queue_depth = 18, .threads = 19};
  config.recompute = {.number_checkpoints = 6, .cpu_checkpointing = true};
  config.steps_per_print = 7;
  config.wall_clock_breakdown = true;
  return config;
}

using Json = nlohmann::ordered_json;

Json::json_pointer pointer(std::string_view path) {
  std::string text = "/" + std::string(path);
  for (char& c : text) c = c == '.' ? '/' : c;
  return Json::json_pointer(text);
}

// What every kind of scheduler and of optimizer prints.
std::vector<Json> printed_defaults() {
  std::vector<Json> all;
  for (int kind = 1; kind <= static_cast<int>(SchedulerConfig::Kind::kLrRangeTest); ++kind) {
    Config config;
    config.scheduler.kind = static_cast<SchedulerConfig::Kind>(kind);
    all.push_back(Json::parse(to_json(config)));
  }
  for (int kind = 0; kind <= static_cast<int>(OptimizerConfig::Kind::kAdamW8bit); ++kind) {
    Config config;
    config.optimizer.kind = static_cast<OptimizerConfig::Kind>(kind);
    all.push_back(Json::parse(to_json(config)));
  }
  Config config;
  config.lora.enabled = true;
  config.quantization.nf4_weights = true;
  all.push_back(Json::parse(to_json(config)));
  return all;
}

// Printed as what the type resolves them to, or only if it is not the default.
const std::set<std::string_view> kByType = {"optimizer.params.adam_w_mode",
                                            "quantization.load_in_4bit"};

Config again(const Config& config) {
  return config_of(to_json(config));
}

}  // namespace

TEST_CASE("what is printed loads back to the same configuration") {
  using Kind = SchedulerConfig::Kind;
  for (const Kind kind : {Kind::kWarmupLr, Kind::kWarmupDecayLr, Kind::kWarmupCosineLr}) {
    const std::string text = to_json(unusual(kind));
    const Config back = config_of(text);
    CHECK(to_json(back) == text);
    CHECK(back.batch.micro_batch_size == 3);
    CHECK(back.loss_scale.min_scale == 4);
    CHECK(back.optimizer.kind == OptimizerConfig::Kind::kAdam);
    CHECK(back.optimizer.betas == std::array{0.8, 0.9});
    CHECK(back.scheduler.kind == kind);
    CHECK(back.scheduler.warmup_type == SchedulerConfig::Warmup::kLinear);
    CHECK(back.zero.max_live_elements == 15);
    CHECK_FALSE(back.zero.overlap_comm);
    CHECK(back.zero.overlap_step);
    CHECK(back.zero.offload_optimizer.nvme_path == "/fast");
    CHECK(back.zero.offload_optimizer.step == OffloadOptimizerConfig::UpdateDevice::kGpu);
    CHECK(back.zero.offload_param.max_in_cpu_elements == 17);
    CHECK(back.tensor_parallel.overlap_comm);
    const LoraConfig lora = unusual_lora();
    CHECK(back.lora.enabled);
    CHECK(back.lora.r == 2);
    CHECK(back.lora.target_modules == lora.target_modules);
    CHECK(back.lora.exclude_modules == lora.exclude_modules);
    CHECK(back.lora.layers_to_transform == lora.layers_to_transform);
    CHECK(back.lora.layers_pattern == lora.layers_pattern);
    CHECK(back.lora.rank_pattern == lora.rank_pattern);
    CHECK(back.lora.alpha_pattern == lora.alpha_pattern);
    CHECK(back.lora.modules_to_save == lora.modules_to_save);
    CHECK(back.lora.bias == lora.bias);
    CHECK(back.lora.init == lora.init);
    CHECK(back.aio.threads == 19);
    CHECK(back.recompute.number_checkpoints == 6);
    CHECK(back.recompute.cpu_checkpointing);
    CHECK(back.wall_clock_breakdown);
  }
}

TEST_CASE("origins stand behind their values, and the text still loads") {
  FlagValues flags;
  flags.lr = 2e-5;
  const Resolved resolved = resolve_text(R"({"zero_optimization": {"stage": 2}})", flags);
  const std::string text = to_json(resolved.config, resolved.origins);
  const auto line_with = [&](const std::string& start) {
    const size_t at = text.find("\"" + start + "\": ");
    REQUIRE(at != std::string::npos);
    return text.substr(at, text.find('\n', at) - at);
  };
  CHECK(line_with("stage").ends_with("  // file"));
  CHECK(line_with("lr").starts_with("\"lr\": 2e-05,"));
  CHECK(line_with("lr").ends_with("  // --lr"));
  CHECK(line_with("gradient_clipping").ends_with("  // DeepSpeed's default"));
  CHECK(line_with("train_batch_size").ends_with("  // micro-batch * accumulation * ranks"));
  CHECK(to_json(config_of(text)) == to_json(resolved.config));
}

TEST_CASE("offload is printed with where its values come from, and loads back") {
  const Resolved resolved = resolve_text(R"({"bf16": {"enabled": true,
      "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
      "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme",
      "nvme_path": "swap", "pin_memory": "auto"}}, "aio": {"thread_count": 3}})");
  const std::string text = to_json(resolved.config, resolved.origins);
  const std::string directory = resolved.config.zero.offload_optimizer.nvme_path;
  CHECK(directory.starts_with("/"));
  CHECK(text.find(fmt::format("\"nvme_path\": \"{}\",", directory)) != std::string::npos);
  const std::string optimizer = "zero_optimization.offload_optimizer.";
  CHECK(resolved.origins.at(optimizer + "nvme_path") == "file");
  CHECK(resolved.origins.at(optimizer + "pin_memory") == "auto: the default");
  CHECK(resolved.origins.at(optimizer + "step") == "default");
  CHECK(resolved.origins.at("aio.intra_op_parallelism") == "file");
  const Resolved back = resolve_text(text);
  CHECK(to_json(back.config) == to_json(resolved.config));
  CHECK(back.config.optimizer.bf16_masters);
  CHECK(back.config.optimizer.bf16_states);
  CHECK(warnings_of(back).empty());
}

TEST_CASE("the resolved defaults load back too") {
  const std::string text = to_json(config_of("{}"));
  CHECK(to_json(config_of(text)) == text);
  std::string rest = text;
  const std::string step = R"("step": "auto")";  // known when training starts
  REQUIRE(rest.find(step) != std::string::npos);
  CHECK(rest.erase(rest.find(step), step.size()).find(R"("auto")") == std::string::npos);
}

TEST_CASE("the keys that change are text to paste, without defaults, and load") {
  const Config before = config_of(R"({"zero_optimization": {"stage": 1, "overlap_comm": false}})");
  CHECK(changed_keys(before, before).empty());
  Config after = before;
  after.zero.stage = 3;
  after.zero.offload_param = {.device = OffloadDevice::kNvme,
                              .nvme_path = "/a \"b",
                              .buffer_size_elements = 7,
                              .max_in_cpu_elements = 0};
  after.recompute.cpu_checkpointing = true;
  const std::string keys = changed_keys(before, after);
  CHECK(keys == R"("zero_optimization": {"stage": 3, "overlap_comm": false, "offload_param": )"
                R"({"device": "nvme", "nvme_path": "/a \"b", "buffer_size": 7, "max_in_cpu": 0}}, )"
                R"("activation_checkpointing": {"cpu_checkpointing": true})");
  const Config loaded = config_of("{" + keys + "}");
  CHECK(to_json(loaded) == to_json(after));
  after.batch.micro_batch_size = 1;
  after.batch.accumulation_steps = 8;
  CHECK(
      changed_keys(before, after)
          .starts_with(R"("train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8)"));
}

TEST_CASE("every honoured key is printed, with the default of its struct") {
  const std::vector<Json> defaults = printed_defaults();
  for (const ConfigKey& key : keys()) {
    if (key.state != KeyState::kHonored || key.field.type == KeyType::kSection) continue;
    if (key.path.starts_with("elasticity.")) continue;  // the batch that it chooses is printed
    if (key.path == "optimizer.params.max_grad_norm") continue;  // as gradient_clipping
    CAPTURE(key.path);
    bool printed = false;
    for (const Json& json : defaults) {
      if (!json.contains(pointer(key.path))) continue;
      printed = true;
      const bool other_default = kByType.count(key.path) > 0;
      if (key.default_value != "null" && !other_default) {
        CHECK(json[pointer(key.path)] == Json::parse(key.default_value));
      }
    }
    CHECK(printed);
  }
}

TEST_CASE("everything that is printed is a honoured key") {
  for (const Json& json : printed_defaults()) {
    const Json flat = json.flatten();
    for (const auto& [path, value] : flat.items()) {
      std::string name = path.substr(1);
      for (char& c : name) c = c == '/' ? '.' : c;
      if (name.starts_with("optimizer.params.betas")) name = "optimizer.params.betas";
      if (name.ends_with("prof_ops")) continue;
      CAPTURE(name);
      const ConfigKey* key = find_key(name);
      REQUIRE(key != nullptr);
      CHECK(key->state == KeyState::kHonored);
    }
  }
}

TEST_CASE("every optimizer loads back with its own values") {
  using Kind = OptimizerConfig::Kind;
  OptimizerConfig all{.lr = 2e-4, .betas = {0.8, 0.9}, .eps = 1e-7, .weight_decay = 0.1};
  all.momentum = 0.7;
  all.nesterov = true;
  all.lr_decay = 0.01;
  all.initial_accumulator_value = 0.2;
  all.bias_correction = false;
  all.eps_inside_sqrt = true;
  all.max_coeff = 5;
  all.min_coeff = 0.1;
  all.min_8bit_size = 100;
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam, Kind::kLion, Kind::kSgd, Kind::kAdagrad,
                          Kind::kLamb, Kind::kAdamW8bit}) {
    Config config;
    config.batch.train_batch_size = 2;
    config.optimizer = all;
    config.optimizer.kind = kind;
    const OptimizerConfig back = again(config).optimizer;
    CHECK(back.kind == kind);
    CHECK(back.lr == all.lr);
    CHECK(back.weight_decay == all.weight_decay);
    const bool has_betas = kind != Kind::kSgd && kind != Kind::kAdagrad;
    if (has_betas) CHECK(back.betas == all.betas);
    if (kind != Kind::kLion && kind != Kind::kSgd) CHECK(back.eps == all.eps);
    CHECK(back.momentum == (kind == Kind::kSgd ? 0.7 : 0));
    CHECK(back.nesterov == (kind == Kind::kSgd));
    CHECK(back.lr_decay == (kind == Kind::kAdagrad ? 0.01 : 0));
    CHECK(back.initial_accumulator_value == (kind == Kind::kAdagrad ? 0.2 : 0));
    const bool lamb = kind == Kind::kLamb;
    const bool coded = kind == Kind::kAdamW8bit;
    const bool corrects = kind == Kind::kAdamW || kind == Kind::kAdam || lamb || coded;
    CHECK(back.bias_correction == !corrects);
    CHECK(back.eps_inside_sqrt == lamb);
    CHECK(back.max_coeff == (lamb ? 5 : 10));
    CHECK(back.min_coeff == (lamb ? 0.1 : 0.01));
    CHECK(back.min_8bit_size == (coded ? 100 : 4096));
  }
}

TEST_CASE("one cycle and the range test load back") {
  Config config;
  config.batch.train_batch_size = 2;
  config.scheduler.kind = SchedulerConfig::Kind::kOneCycle;
  config.scheduler.one_cycle = {.min_lr = 1e-4,
                                .max_lr = 1e-3,
                                .first_step_size = 10,
                                .second_step_size = 20,
                                .first_stair_count = 2,
                                .second_stair_count = 3,
                                .decay_step_size = 4,
                                .decay_lr_rate = 0.5,
                                .cycle_momentum = false,
                                .min_momentum = 0.7,
                                .max_momentum = 0.95,
                                .decay_momentum_rate = 0.1};
  CHECK(to_json(again(config)) == to_json(config));
  config.scheduler.kind = SchedulerConfig::Kind::kLrRangeTest;
  config.scheduler.range_test = {.min_lr = 1e-4, .step_size = 5, .step_rate = 2, .staircase = true};
  CHECK(to_json(again(config)) == to_json(config));
}

TEST_CASE("a constant rate has no scheduler section") {
  CHECK(to_json(Config()).find("scheduler") == std::string::npos);
}

TEST_CASE("the section of adapters is printed if there are some, with the origins of its values") {
  CHECK(to_json(Config()).find("lora") == std::string::npos);
  FlagValues flags;
  flags.use_peft = true;
  flags.lora_target_modules = {"all-linear"};
  const Resolved resolved = resolve_text("{}", flags);
  const std::string text = to_json(resolved.config, resolved.origins);
  for (const char* line : {"\"r\": 16,", "// default of --lora_r\n", "// --lora_target_modules\n",
                           "\"init_lora_weights\": true"}) {
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  }
  CHECK(to_json(config_of(text)) == to_json(resolved.config));
  CHECK(changed_keys(config_of("{}"), resolved.config) ==
        R"("lora": {"r": 16, "lora_alpha": 32.0, "lora_dropout": 0.05, )"
        R"("target_modules": "all-linear"})");
}

TEST_CASE("with split layers a configuration loads back, too") {
  Config config = unusual(SchedulerConfig::Kind::kWarmupLr);
  config.lora = {};
  config.tensor_parallel.size = 2;
  config.batch.train_batch_size = 12;
  CHECK(again(config).tensor_parallel.size == 2);
  CHECK(to_json(again(config)) == to_json(config));
}

}  // namespace zeroth::configs::print_test
