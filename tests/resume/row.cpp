#include "tests/resume/row.h"

#include <fmt/format.h>

#include <mutex>

#include "base/files/regular_file.h"
#include "engine/engine.h"
#include "engine/start.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/counting_dataset.h"
#include "trainer/batch_loader.h"

namespace zeroth::resume {
namespace {

namespace fs = std::filesystem;
using configs::OffloadDevice;
using configs::Precision;

constexpr uint64_t kSeed = 7;

// A rate that still warms up where the run is ended, and a scale that overflows until then.
configs::Config config_of(const Row& row, const TempFolder& disk) {
  configs::Config config;
  const int64_t rows = row.ranks * row.accumulation;
  config.batch = {.train_batch_size = kGlobalBatch,
                  .micro_batch_size = (kGlobalBatch + rows - 1) / rows,
                  .accumulation_steps = row.accumulation};
  config.precision = row.precision;
  // Of three ranks in stage 0 gradients are summed before they are divided, and overflow sooner.
  const bool sums_first = row.stage == 0 && row.ranks == 3;
  config.loss_scale = {.initial_scale_power = sums_first ? 20 : 22, .window = 2, .hysteresis = 1};
  config.optimizer = {.lr = 1e-2, .betas = {0.9, 0.95}, .weight_decay = 0.1};
  config.scheduler = {.kind = configs::SchedulerConfig::Kind::kWarmupLr,
                      .warmup_max_lr = 1e-2,
                      .warmup_num_steps = 5,
                      .warmup_type = configs::SchedulerConfig::Warmup::kLinear};
  config.zero = {.stage = row.stage, .param_persistence_threshold_elements = 0};
  if (row.recompute) config.recompute = {.every_nth_block = 1};
  config.zero.offload_optimizer.device = row.offload_device;
  config.zero.offload_optimizer.nvme_path = disk.path();
  if (row.stage == 3) {
    config.zero.offload_param.device = row.offload_device;
    config.zero.offload_param.nvme_path = disk.path();
  }
  config.tensor_parallel.size = row.tensor;
  config.pipeline = {.stages = row.pipe, .schedule = row.schedule};
  config.seed = kSeed;
  return config;
}

// Notes which samples are drawn.
class NotingLoader : public engine::DataLoader {
 public:
  NotingLoader(trainer::TrainDataLoader& loader, Seen& seen) : loader_(loader), seen_(seen) {}
  model::MicroBatch next() override {
    const int64_t step = loader_.position()->step;
    model::MicroBatch batch = loader_.next();
    for (const int64_t sample : batch.samples) {
      if (sample != data::kNoSample) seen_.samples[step].insert(sample);
    }
    return batch;
  }
  std::optional<int64_t> count_positions(int64_t micro_batches) const override {
    return loader_.count_positions(micro_batches);
  }

 private:
  trainer::TrainDataLoader& loader_;
  Seen& seen_;
};

Seen run_rank(const Row& row, const Part& part, const TempFolder& disk,
              const std::shared_ptr<comm::DeviceMesh>& mesh) {
  const fs::path directory =
      fs::path(ZEROTH_SOURCE_DIR "/tests/model/fixtures") / (row.dropout > 0 ? "gpt2" : row.model);
  model::ModelSpec spec = model::read_model_spec(directory);
  model::override_dropout(spec, row.dropout);
  const configs::Config config = config_of(row, disk);
  const auto engine = engine::initialize(
      model::build_blocks(spec, engine::tensor_parallel_group(*mesh, config)), config, mesh,
      {.weights = model::open_weights(directory, spec, /*seed=*/0),
       .saved_model = engine::SavedModel{spec}});
  const trainer::CountingDataset dataset(kSamples, 12);
  trainer::TrainDataLoader loader(dataset, data::SampleOrder(kSamples, kSeed, /*shuffle=*/true),
                                  {.micro_batch = config.batch.micro_batch_size,
                                   .micro_steps = row.accumulation,
                                   .world = row.ranks,
                                   .rank = mesh->coordinate(comm::MeshDim::kDp),
                                   .step_samples = kGlobalBatch},
                                  kSeed);
  if (!part.load.empty()) {
    const auto loaded = engine->load_checkpoint(part.load);
    ZEROTH_CHECK(loaded && engine->counters().steps == part.from, "{} was not loaded",
                 part.load.string());
  }
  loader.seek({.step = part.from, .sample = part.from * kGlobalBatch});
  Seen seen;
  Seen again;  // by ranks that share samples with another one
  const bool is_first =
      mesh->coordinate(comm::MeshDim::kTp) == 0 && mesh->coordinate(comm::MeshDim::kPp) == 0;
  NotingLoader noting(loader, is_first ? seen : again);
  for (int64_t step = part.from + 1; step <= part.to; ++step) {
    const engine::StepStats stats = engine->train_batch(noting);
    seen.losses.push_back(stats.loss);
    seen.norms.push_back(stats.grad_norm);
    seen.skipped.push_back(stats.skipped);
    if (part.save.empty()) continue;
    if (step == part.to) engine->save_checkpoint(part.save);  // ends the other one
    if (step == part.save_at) engine->start_checkpoint(part.save);
  }
  if (engine->has_pending_checkpoint()) engine->finish_checkpoint();
  if (part.from == part.to) engine->save_checkpoint(part.save);
  return seen;
}

}  // namespace

std::string name_of(const Row& row) {
  constexpr const char* kPlaces[] = {"device", "cpu", "nvme"};
  constexpr const char* kPrecisions[] = {"fp32", "bf16", "fp16"};
  const size_t precision = row.precision == Precision::kFp32   ? 0
                           : row.precision == Precision::kBf16 ? 1
                                                               : 2;
  return fmt::format(
      "{}, stage {}, on {}, {}, accumulation {}, {} ranks{}{}{}{}", row.model, row.stage,
      kPlaces[static_cast<size_t>(row.offload_device)], kPrecisions[precision], row.accumulation,
      row.ranks, row.tensor > 1 ? fmt::format(" x tensor {}", row.tensor) : "",
      row.pipe > 1
          ? fmt::format(" x pipe {}, schedule {}", row.pipe, static_cast<int>(row.schedule))
          : "",
      row.recompute ? ", recompute" : "", row.dropout > 0 ? ", dropout" : "");
}

Seen run(const Row& row, const Part& part) {
  Seen all;
  std::mutex mutex;
  const TempFolder disk;
  const auto grid = comm::MeshShape::data_parallel(row.ranks)
                        .with(comm::MeshDim::kPp, row.pipe)
                        .with(comm::MeshDim::kTp, row.tensor);
  const auto one_rank = [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    Seen own = run_rank(row, part, disk, mesh);
    const std::lock_guard lock(mutex);
    for (const auto& [step, samples] : own.samples) {
      all.samples[step].insert(samples.begin(), samples.end());
    }
    all.losses = std::move(own.losses);
    all.norms = std::move(own.norms);
    all.skipped = std::move(own.skipped);
  };
  testing::run_ranks(grid.ranks(), one_rank, {.grid = grid});
  return all;
}

std::map<std::string, std::string> bytes_of(const fs::path& checkpoint) {
  std::map<std::string, std::string> bytes;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
    if (!entry.is_regular_file() || entry.path().filename() == "manifest.json") continue;
    bytes[fs::relative(entry.path(), checkpoint).string()] = read_file(entry.path(), 1 << 26);
  }
  return bytes;
}

}  // namespace zeroth::resume
