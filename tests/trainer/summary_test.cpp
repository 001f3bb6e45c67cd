#include "trainer/report/summary.h"

#include <doctest/doctest.h>

#include "engine/start.h"
#include "tests/trainer/counting_dataset.h"

namespace zeroth::trainer::summary_test {
namespace {

constexpr data::BatchPartition kBatchOf8 = {
    .micro_batch = 2, .micro_steps = 2, .world = 2, .step_samples = 8};

Samples small_samples() {
  Samples samples;
  samples.train = std::make_unique<CountingDataset>(32, 8);
  samples.total_steps = 6;
  samples.epoch_samples = samples.epoch_positions = 32;
  return samples;
}

using configs::OffloadDevice;
using Lines = std::vector<std::string>;

engine::RunMemory training_run() {
  engine::RunMemory run;
  run.config.zero.stage = 3;
  return run;
}

}  // namespace

TEST_CASE("the model's line names folder, family and sizes") {
  model::ModelSpec spec;
  spec.family = "llama";
  spec.num_layers = 2;
  spec.hidden_size = 64;
  spec.vocab_size = 512;
  CHECK(model_line("/models/tiny-llama/", spec, 3'100'000) ==
        "tiny-llama (llama): 3.10M parameters, 2 layers, hidden 64, vocabulary 512");
}

TEST_CASE("the batch line is the equation, with steps and epochs") {
  CHECK(batch_line(kBatchOf8, small_samples(), 2) ==
        "8 samples = 2 per micro-batch x 2 accumulated x 2 ranks; 6 steps = 1.5 epochs");
}

TEST_CASE("ranks that split layers are drawn, and count as one in the batch") {
  using comm::MeshDim, comm::MeshShape;
  configs::Config config;
  config.tensor_parallel.size = 2;
  CHECK(batch_line(kBatchOf8, small_samples(), 4) ==
        "8 samples = 2 per micro-batch x 2 accumulated x 2 data ranks; 6 steps = 1.5 epochs");
  const MeshShape four = engine::grid_shape(config, 4);
  CHECK(mesh_line(four) == "data 2 x tensor 2: tensor groups {0 1} {2 3}");
  CHECK(mesh_line(MeshShape().with(MeshDim::kTp, 4)) == "tensor 4: tensor group {0 1 2 3}");
  CHECK(mesh_line(four.with(MeshDim::kDp, 11)).ends_with(" {14 15} and 3 more"));
}

TEST_CASE("epochs are rounded to two places and one is singular") {
  Samples samples = small_samples();
  samples.total_steps = 4;
  CHECK(batch_line(kBatchOf8, samples, 2).ends_with("4 steps = 1 epoch"));
  samples.total_steps = 1235;
  CHECK(batch_line(kBatchOf8, samples, 2).ends_with("1235 steps = 308.75 epochs"));
  data::BatchPartition larger = kBatchOf8;
  larger.step_samples = 10;
  samples.total_steps = 7;
  samples.train_samples = 64;  // the last step is short
  CHECK(batch_line(larger, samples, 2).ends_with("7 steps = 2 epochs"));
  samples.train = std::make_unique<CountingDataset>(30000, 8);
  samples.epoch_samples = samples.epoch_positions = 30000;
  CHECK(batch_line(larger, samples, 2).ends_with("7 steps = 0.0021 epochs"));
}

TEST_CASE("an evaluation alone accumulates nothing") {
  Samples samples = small_samples();
  samples.train = nullptr;
  CHECK(batch_line(kBatchOf8, samples, 2) == "4 samples = 2 per micro-batch x 2 ranks");
}

TEST_CASE("the data line counts samples and tokens") {
  CHECK(data_line({"some/train.bin"}, CountingDataset(16, 8)) ==
        "train.bin: 16 samples of at most 8 positions, 72 tokens, 72 trained");
  CHECK(data_line({"a/one.bin", "b/two.bin:0.5"}, CountingDataset(16, 8))
            .starts_with("one.bin, two.bin:0.5: 16 samples"));
}

TEST_CASE("optimizer, schedule and clipping stand in one line") {
  configs::Config config;
  config.optimizer.lr = 5e-5;
  const engine::DecayCounts all{.decayed = 1000};
  CHECK(optimizer_line(config, all) ==
        "AdamW lr 5e-05, betas 0.9 0.999, eps 1e-08, weight decay 0 on 1.00K parameters; constant "
        "rate; clipped at norm 1");
  config.scheduler.kind = configs::SchedulerConfig::Kind::kWarmupDecayLr;
  config.scheduler.warmup_type = configs::SchedulerConfig::Warmup::kLinear;
  config.scheduler.warmup_num_steps = 5;
  config.scheduler.total_num_steps = 20;
  config.gradient_clipping = 0;
  CHECK(optimizer_line(config, all)
            .ends_with(
                "linear warm-up over 5 steps to 0.001, then linear to 0 at step 20; not clipped"));
  config.scheduler.warmup_min_lr = 1e-5;
  CHECK(optimizer_line(config, all).ends_with("then linear to 1e-05 at step 20; not clipped"));
  CHECK(optimizer_line(config, all, "file").ends_with("; not clipped (file)"));
  config.gradient_clipping = 0.5;
  CHECK(optimizer_line(config, all, "DeepSpeed's default")
            .ends_with("; clipped at norm 0.5 (DeepSpeed's default)"));
}

TEST_CASE("every optimizer is described by what shapes its update, and what it does not decay") {
  using Kind = configs::OptimizerConfig::Kind;
  configs::Config config;
  config.optimizer.weight_decay = 0.1;
  const auto line = [&](Kind kind) {
    config.optimizer.kind = kind;
    return optimizer_line(config, {.decayed = 5000, .not_decayed = 64});
  };
  CHECK(line(Kind::kAdam)
            .starts_with("Adam lr 0.001, betas 0.9 0.999, eps 1e-08, weight decay 0.1 on 5.00K "
                         "parameters, none on 64 "
                         "(norms, biases); "));
  CHECK(line(Kind::kAdamW8bit)
            .starts_with("AdamW8bit lr 0.001, betas 0.9 0.999, eps 1e-08, weight decay 0.1 on "));
  CHECK(line(Kind::kLion).starts_with("Lion lr 0.001, betas 0.9 0.999, weight decay"));
  CHECK(line(Kind::kAdagrad).starts_with("Adagrad lr 0.001, eps 1e-08, weight decay"));
  CHECK(line(Kind::kLamb)
            .starts_with("Lamb lr 0.001, betas 0.9 0.999, eps 1e-08, ratios of norms from 0.01 to "
                         "10, weight decay"));
  config.optimizer.momentum = 0.9;
  config.optimizer.nesterov = true;
  CHECK(line(Kind::kSgd).starts_with("SGD lr 0.001, momentum 0.9 (Nesterov), weight decay"));
}

TEST_CASE("the loss is told with its mean and dropout") {
  using configs::LossMean;
  model::ModelSpec spec;
  CHECK(loss_line(LossMean::kToken, spec) == "mean over the trained tokens of a step; no dropout");
  spec.attention_dropout = 0.1;
  CHECK(loss_line(LossMean::kMicroBatch, spec) ==
        "mean of the micro-batches' means; dropout: embedding 0, attention 0.1, residual 0");
}

TEST_CASE("precision comes with its loss scale and recompute") {
  configs::Config config;
  CHECK(precision_line(config, true) == "fp32");
  config.precision = configs::Precision::kFp16;
  CHECK(precision_line(config, true) == "fp16 with fp32 masters, dynamic loss scale from 2^16");
  config.loss_scale.static_scale = 1024;
  config.recompute.every_nth_block = 2;
  CHECK(precision_line(config, true) ==
        "fp16 with fp32 masters, loss scale 1024; recompute: every 2. block keeps only its input");
  config.recompute = {};
  config.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
  CHECK(precision_line(config, true) ==
        "fp16 with fp32 masters, loss scale 1024; breadth-first: all micro-batches pass a block "
        "before the next");
}

TEST_CASE("the precision line does not speak of fp32 masters where there are none") {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  CHECK(precision_line(config, true) == "bf16 with fp32 masters");
  config.optimizer.bf16_masters = true;
  CHECK(precision_line(config, true) == "bf16, masters too");
  config.optimizer.bf16_states = true;
  CHECK(precision_line(config, true) == "bf16, masters and optimizer states too");
  CHECK(precision_line(config, /*trains=*/false) == "bf16");
}

TEST_CASE("the evaluation's line names the file") {
  Samples samples = small_samples();
  samples.eval = std::make_unique<CountingDataset>(16, 8);
  CHECK(data_line({"train.bin"}, *samples.eval) ==
        "train.bin: 16 samples of at most 8 positions, 72 tokens, 72 trained");
}

TEST_CASE("host memory as a resting place is said to move nothing in a run on the CPU") {
  engine::RunMemory run = training_run();
  CHECK(offload_notes(run).empty());
  run.config.zero.offload_optimizer.device = OffloadDevice::kCpu;
  run.config.zero.offload_param.device = OffloadDevice::kCpu;
  run.config.recompute = {.every_nth_block = 1, .cpu_checkpointing = true};
  const std::string why = " has no effect: this run computes in host memory";
  CHECK(offload_notes(run) == Lines{"zero_optimization.offload_optimizer.device \"cpu\"" + why,
                                    "zero_optimization.offload_param.device \"cpu\"" + why,
                                    "activation_checkpointing.cpu_checkpointing" + why});
  run.options.trains = false;
  CHECK(offload_notes(run) == Lines{"zero_optimization.offload_param.device \"cpu\"" + why});
  run.options.device = torch::kCUDA;
  CHECK(offload_notes(run).empty());
}

TEST_CASE("a step on a GPU is asked for in vain on the CPU, wherever states rest") {
  engine::RunMemory run = training_run();
  run.memory.states.file = 4096;
  run.config.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::UpdateDevice::kGpu;
  CHECK(offload_notes(run).empty());
  for (const auto place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    run.config.zero.offload_optimizer.device = place;
    REQUIRE_FALSE(offload_notes(run).empty());
    CHECK(offload_notes(run).back() ==
          "zero_optimization.offload_optimizer.step \"gpu\" has no effect: this run computes in "
          "host memory");
  }
  run.options.device = torch::kCUDA;
  CHECK(offload_notes(run).empty());
}

TEST_CASE("a file in which nothing rests is told with the keys that keep it empty") {
  engine::RunMemory run = training_run();
  run.config.zero.offload_param = {.device = OffloadDevice::kNvme, .max_in_cpu_elements = 5000};
  run.memory.parameters.device = 4096;
  CHECK(offload_notes(run) ==
        Lines{"zero_optimization.offload_param.device \"nvme\": nothing is offloaded to a file: "
              "max_in_cpu 5000 and stage3_param_persistence_threshold 100000 keep all in memory"});
  run.memory.parameters.file = 4096;
  CHECK(offload_notes(run).empty());
}

TEST_CASE("an optimizer's file that stays empty is told with the reason") {
  engine::RunMemory run = training_run();
  run.config.zero.offload_optimizer = {.device = OffloadDevice::kNvme, .ratio = 0.25};
  const std::string start =
      "zero_optimization.offload_optimizer.device \"nvme\": nothing is offloaded to a file: ";
  CHECK(offload_notes(run) == Lines{start + "this optimizer has no state"});
  run.memory.states.device = 4096;
  CHECK(offload_notes(run) == Lines{start + "ratio 0.25 leaves no unit for it"});
  run.memory.states.file = 4096;
  CHECK(offload_notes(run).empty());
}

}  // namespace zeroth::trainer::summary_test
