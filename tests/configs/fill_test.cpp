#include "tests/configs/support.h"

namespace zeroth::configs::fill_test {

TEST_CASE("every flag that disagrees with the file stands in one error") {
  FlagValues flags;
  flags.global_batch = 16;
  flags.micro_batch = 4;
  flags.accumulation = 2;
  flags.max_grad_norm = 0.5;
  flags.lr = 1e-4;
  flags.betas = {0.8, 0.9};
  flags.eps = 1e-6;
  flags.weight_decay = 0.1;
  flags.warmup_steps = 5;
  flags.precision = Precision::kBf16;
  flags.gradient_checkpointing = 2;
  flags.drop_last = true;
  flags.tensor_parallel = 2;
  flags.lora_r = 4;
  const std::string error = error_of(R"({"train_batch_size": 8,
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
      "dataloader_drop_last": false,
      "gradient_clipping": 1.0, "fp16": {"enabled": true}, "bf16": {"enabled": false},
      "optimizer": {"type": "AdamW", "params":
          {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.0}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 9}},
      "activation_checkpointing": {"number_checkpoints": 3}, "tensor_parallel": {"autotp_size": 4},
      "lora": {"r": 2}})",
                                     flags);
  for (const char* pair :
       {"train_batch_size: 8 in the file, but --global-batch 16",
        "train_micro_batch_size_per_gpu: 2 in the file, but --micro-batch 4",
        "gradient_accumulation_steps: 1 in the file, but --accumulation 2",
        "gradient_clipping: 1.0 in the file, but --max-grad-norm 0.5",
        "tensor_parallel.autotp_size: 4 in the file, but --tensor-parallel 2",
        "lora.r: 2 in the file, but --lora_r 4",
        "dataloader_drop_last: false in the file, but --drop-last true",
        "fp16.enabled: true in the file, but --bf16", "bf16.enabled: false in the file, but --bf16",
        "optimizer.params.lr: 0.001 in the file, but --lr 0.0001",
        "optimizer.params.betas: [0.9,0.99] in the file, but --betas [0.8,0.9]",
        "optimizer.params.eps: 1e-08 in the file, but --eps 1e-06",
        "optimizer.params.weight_decay: 0.0 in the file, but --weight-decay 0.1",
        "scheduler.params.warmup_max_lr: 0.001 in the file, but --lr 0.0001",
        "scheduler.params.warmup_num_steps: 9 in the file, but --warmup-steps 5",
        "activation_checkpointing.number_checkpoints: 3 in the file, but "
        "--gradient-checkpointing=2"}) {
    CHECK_MESSAGE(error.find(pair) != std::string::npos, pair);
  }
}

TEST_CASE("values say where they come from") {
  FlagValues flags;
  flags.lr = 2e-5;
  flags.precision = Precision::kBf16;
  flags.micro_batch = 4;
  const Origins origins = resolve_text(R"({"gradient_clipping": 0.5,
      "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"},
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": "auto"}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
          "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
      "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                            "allgather_bucket_size": "auto"}})",
                                       flags)
                              .origins;
  const std::map<std::string, std::string> expected = {
      {"gradient_clipping", "file"},
      {"train_micro_batch_size_per_gpu", "auto: --micro-batch"},
      {"train_batch_size", "micro-batch * accumulation * ranks"},
      {"gradient_accumulation_steps", "default"},
      {"fp16.enabled", "--bf16"},
      {"bf16.enabled", "auto: --bf16"},
      {"optimizer.type", "file"},
      {"optimizer.params.lr", "auto: --lr"},
      {"optimizer.params.eps", "auto: default of --eps"},
      {"optimizer.params.betas", "default"},
      {"scheduler.params.total_num_steps", "auto: the steps of the run"},
      {"scheduler.params.warmup_max_lr", "auto: --lr"},
      {"scheduler.params.warmup_num_steps", "auto: the shortest"},
      {"zero_optimization.stage", "file"},
      {"zero_optimization.reduce_bucket_size", "auto: hidden size squared"},
      {"zero_optimization.allgather_bucket_size", "auto: the default"},
      {"zero_optimization.stage3_prefetch_bucket_size", "default"},
      {"zero_optimization.overlap_comm", "default"}};
  for (const auto& [path, origin] : expected) {
    CAPTURE(path);
    CHECK(origins.at(path) == origin);
  }
}

TEST_CASE("what has a flag and no key reaches the configuration") {
  const Config plain = config_of("{}");
  CHECK(plain.loss_mean == LossMean::kToken);
  CHECK(plain.on_non_finite == OnNonFinite::kSkip);
  CHECK_FALSE(plain.dropout.has_value());
  CHECK_FALSE(plain.optimizer.no_decay);
  FlagValues flags;
  flags.loss_mean = LossMean::kMicroBatch;
  flags.on_non_finite = OnNonFinite::kFail;
  flags.dropout = 0.1;
  flags.no_decay = true;
  const Config config = config_of("{}", flags);
  CHECK(config.loss_mean == LossMean::kMicroBatch);
  CHECK(config.on_non_finite == OnNonFinite::kFail);
  CHECK(config.dropout == 0.1);
  CHECK(config.optimizer.no_decay);
  flags.dropout = 1.0;
  CHECK(error_of("{}", flags) == "test.json: --dropout: expected [0, 1), found 1");
}

}  // namespace zeroth::configs::fill_test
