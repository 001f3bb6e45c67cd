#include "engine/train_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "engine/state/safetensors_sink.h"
#include "engine/step/slice_gatherer.h"
#include "engine/verify/stop_agreement.h"
#include "engine/verify/unused_parameters.h"
#include "engine/verify/verify_batches_match.h"
#include "zero/dtype.h"
#include "zero/parameter_index.h"

namespace zeroth::engine {

TrainEngine::TrainEngine(model::Blocks blocks, const configs::Config& config,
                         std::shared_ptr<comm::DeviceMesh> mesh,
                         std::shared_ptr<device::HostLink> link, bool trains)
    : config_(config),
      mesh_(std::move(mesh)),
      blocks_(std::move(blocks)),
      plan_(zero::plan_units(blocks_, *mesh_, trains)),
      strategy_(zero::make_strategy(plan_, config_, *mesh_, std::move(link))),
      lr_(config_.scheduler, config_.optimizer),
      scaler_(optim::make_loss_scaler(config_.precision, config_.loss_scale)),
      first_trained_(zero::first_trained_block(plan_)),
      segments_(plan_segments(blocks_.size(), config_.recompute, first_trained_)),
      saved_inputs_(make_saved_inputs(blocks_.size(), config_.recompute, mesh_->device())),
      runner_(blocks_, *strategy_.params, *strategy_.grads, segments_),
      profiler_(config_, *mesh_),
      checkpoints_(*mesh_),
      skips_(make_non_finite_skips(config_)),
      failure_(trains ? "" : "train_batch: the engine was created for evaluation only") {}

StepStats TrainEngine::train_batch(Loader& data) {
  if (!failure_.empty()) throw Error(failure_);
  require_values("train_batch");
  StepStats stats;
  profiler_.begin(steps_);
  strategy_.grads->reset();  // also after a step that threw
  const OffloadTimes offload_before = offload_times();
  StepBatches step(data, config_.batch.accumulation_steps, mesh_->device());
  runner_.inspect_outputs(skips_.in_a_row());
  runner_.set_block_timer(profiler_.block_timer());
  const torch::Tensor loss = run_micro_batches(step);
  const torch::Tensor squares = strategy_.grads->finish();
  const torch::Tensor totals = pack_totals(loss, squares, local_totals(step, data));
  mesh_->world().all_reduce(totals, comm::ReduceOp::kSum, "loss and norm of the step").wait();
  profiler_.end_phase(StepPhase::kReduce);
  const StepTotals sums = unpack_totals(totals);
  if (sums.counts.num_label_tokens == 0) throw_no_label_tokens(step, steps_ + 1, *mesh_);
  if (sums.unused > 0) throw_unused_parameter(plan_, *strategy_.grads, steps_ + 1, *mesh_);

  const double normalization = normalizer_->normalization(sums.counts);
  const double grad_factor = strategy_.factors.after / scaler_.scale() * normalization;
  stats.step = ++steps_;
  stats.loss = sums.loss * normalization;
  stats.grad_norm = std::sqrt(sums.squares) * grad_factor;
  stats.stop_requested = sums.stop_requests > 0;
  stats.save_requested = sums.save_requests > 0;
  checkpoints_.set_ranks_writing(sums.writing);
  stats.checkpoint_written = checkpoints_.written();
  stats.tokens = sums.counts.tokens;
  stats.num_label_tokens = sums.counts.num_label_tokens;
  finish_step(stats, grad_factor);
  checkpoints_.after_update();
  profiler_.end_phase(StepPhase::kUpdate);
  profiler_.report(blocks_, stats);
  report_offload(offload_before, stats);
  return stats;
}

StepTotals TrainEngine::local_totals(const StepBatches& step, Loader& data) {
  const bool unused =
      !config_.zero.ignore_unused_parameters && has_unused_parameters(plan_, *strategy_.grads);
  return {.stop_requests = data.stop_requested(),
          .save_requests = data.save_requested(),
          .writing = checkpoints_.writes(),
          .unused = unused,
          .counts = reports_loss(*mesh_) ? step.counts() : TokenCounts()};
}

OffloadTimes TrainEngine::offload_times() const {
  return {.update = strategy_.params->pending_update_seconds(),
          .traffic = strategy_.shard_stores.traffic()};
}

void TrainEngine::report_offload(const OffloadTimes& before, StepStats& stats) const {
  const OffloadTimes now = offload_times();
  stats.offload = {.update = now.update - before.update, .traffic = now.traffic - before.traffic};
  // A GPU's clock does not include concurrent work of the CPU.
  if (!mesh_->device().is_cpu()) return;
  stats.times.forward -= stats.offload.update;
  stats.times.update += stats.offload.update;
}

torch::Tensor TrainEngine::run_micro_batches(StepBatches& step) try {
  Tape tape(blocks_.size(), first_trained_ + 1, saved_inputs_);
  torch::Tensor loss =
      torch::zeros({}, torch::TensorOptions(mesh_->device()).dtype(torch::kDouble));
  const bool verifies = !std::exchange(batches_verified_, true);
  for (int64_t left = config_.batch.accumulation_steps; left > 0; --left) {
    const model::MicroBatch batch = next_batch(step, verifies);
    // Gathers prefetch no further than the next micro-batch, which accesses every block.
    strategy_.params->set_access_order(block_accesses(segments_, std::min<int64_t>(left, 2)));
    loss += runner_.forward(batch, tape).to(torch::kDouble);
    profiler_.end_phase(StepPhase::kForward);
    runner_.backward(batch, /*last=*/left == 1, tape);
    profiler_.end_phase(StepPhase::kBackward);
  }
  strategy_.params->set_access_order({});
  return reports_loss(*mesh_) ? loss : torch::zeros_like(loss);
} catch (...) {
  step.skip_remaining();
  throw;
}

model::MicroBatch TrainEngine::next_batch(StepBatches& step, bool verifies) {
  if (!normalizer_) normalizer_ = make_loss_normalizer(step.count_positions(), config_, *mesh_);
  model::MicroBatch batch = step.next();
  if (verifies) verify_batches_match(batch, steps_ + 1, *mesh_);
  batch.loss_normalizer = normalizer_->divisor(count_label_tokens(batch));
  batch.grad_scale = scaler_.scale() * strategy_.factors.before;
  batch.loss_gradient =
      torch::full({}, batch.grad_scale, batch.tokens.options().dtype(torch::kFloat));
  profiler_.end_phase(StepPhase::kData);
  return batch;
}

void TrainEngine::finish_step(StepStats& stats, double grad_factor) {
  stats.lr = lr_.at(applied_updates_);
  stats.loss_scale = scaler_.scale();
  const bool finite = std::isfinite(stats.grad_norm);
  const bool looks = config_.check_grad_overflow || config_.precision != configs::Precision::kBf16;
  stats.skipped = looks && !finite;
  if (finite) {
    skips_.clean_step();
  } else {
    const NonFiniteSkips::Skip skip{.step = stats.step,
                                    .loss_scale = stats.loss_scale,
                                    .at_floor = scaler_.at_floor(),
                                    .applied = !stats.skipped,
                                    .bad_output = runner_.first_bad_output()};
    failure_ = skips_.not_finite(skip, plan_, strategy_, *mesh_);
    stats.failure = failure_;
    stats.not_finite = skips_.since();
  }
  if (!stats.skipped) apply_update(stats, grad_factor);
  scaler_.update(stats.skipped);
  stats.next_lr = lr_.at(applied_updates_);
  stats.next_betas = lr_.betas_at(applied_updates_);
  stats.skipped_total = steps_ - applied_updates_;
}

void TrainEngine::apply_update(const StepStats& stats, double grad_factor) {
  // Clip as torch's clip_grad_norm_ and DeepSpeed do: by a factor of clip / (norm + 1e-6) if that
  // is below 1. Do not clip if the norm is not finite, which the configuration ignores here.
  const bool clips = config_.gradient_clipping > 0 && std::isfinite(stats.grad_norm);
  const double clip =
      clips ? std::min(1.0, config_.gradient_clipping / (stats.grad_norm + 1e-6)) : 1.0;
  optim::UpdateStep step = optim::default_step(config_.optimizer, applied_updates_ + 1);
  step.lr = stats.lr;
  step.betas = lr_.betas_at(applied_updates_);
  step.grad_factor = clip * grad_factor;
  step.rounding_seed = config_.seed;
  strategy_.params->step(step);
  ++applied_updates_;
}

// Throws an Error if ranks pass different numbers, as they would wait for each other until the
// timeout.
void TrainEngine::verify_micro_batches_match(int64_t micro_batches) const {
  std::array min_counts = {micro_batches, -micro_batches};
  comm::all_reduce_values(min_counts, comm::ReduceOp::kMin, "numbers of micro-batches", *mesh_);
  const int64_t min_micro_batches = min_counts[0], max_micro_batches = -min_counts[1];
  if (min_micro_batches != max_micro_batches) {
    throw Error(
        "eval_batch: ranks pass different numbers of micro-batches, from {} to {} (rank {}: {})",
        min_micro_batches, max_micro_batches, mesh_->rank(), micro_batches);
  }
}

void TrainEngine::require_values(std::string_view call) const {
  if (has_values_) return;
  throw Error("{}: the engine awaits a checkpoint. Call load_checkpoint first", call);
}

std::vector<size_t> TrainEngine::forward_accesses(int64_t count) const {
  std::vector<size_t> blocks;
  for (int64_t pass = 0; pass < count; ++pass) {
    for (size_t block = 0; block < blocks_.size(); ++block) blocks.push_back(block);
  }
  return blocks;
}

EvalStats TrainEngine::eval_batch(Loader& data, int64_t micro_batches) {
  require_values("eval_batch");
  torch::Tensor sums =
      torch::zeros({2}, torch::TensorOptions(mesh_->device()).dtype(torch::kDouble));
  verify_micro_batches_match(micro_batches);
  StopAgreement end(*mesh_, [&] { return data.stop_requested(); });
  bool ended = false;
  StepBatches drawn(data, micro_batches, mesh_->device());
  for (int64_t i = 0; i < micro_batches; ++i) {
    model::MicroBatch batch = drawn.next();
    if (i == 0) verify_batches_match(batch, steps_, *mesh_);
    strategy_.params->set_access_order(forward_accesses(std::min<int64_t>(micro_batches - i, 2)));
    batch.row_seeds.clear();    // disables dropout
    batch.loss_normalizer = 1;  // sum over tokens, divided once at the end
    const torch::Tensor loss = runner_.evaluate(batch, [&] { return ended = end.stop_agreed(); });
    if (ended) break;
    if (!reports_loss(*mesh_)) continue;
    sums[0] += loss.to(torch::kDouble);
    sums[1] += static_cast<double>(count_label_tokens(batch));
  }
  strategy_.params->set_access_order({});
  if (ended) return {.stop_requested = true};
  sums = sums.to(torch::kCPU);
  mesh_->cpu_group().all_reduce(sums, comm::ReduceOp::kSum, "loss of the evaluation").wait();
  const double tokens = sums[1].item<double>();
  if (tokens == 0) throw Error("the evaluation set has no label tokens");
  return {.loss = sums[0].item<double>() / tokens,
          .num_label_tokens = static_cast<int64_t>(tokens)};
}

torch::Tensor TrainEngine::whole_master(size_t unit) {
  const zero::Unit& owner = plan_.units[unit];
  const torch::Tensor own = strategy_.optimizer->master(unit).to(mesh_->device());
  if (own.numel() == owner.layout.numel()) return own;
  const torch::Tensor whole = torch::empty({owner.layout.numel()}, own.options());
  mesh_->shard_group(owner.num_replicas)
      .all_gather(whole, own, "masters of " + owner.label())
      .wait();
  return whole;
}

void TrainEngine::save_model(ModelSink& sink, SavedValues values) {
  const bool masters =
      values == SavedValues::kMasters && config_.precision != configs::Precision::kFp32;
  const torch::Dtype dtype = masters ? torch::kFloat32 : zero::torch_dtype(config_.precision);
  const std::vector<zero::GlobalParameter> parameters = zero::global_parameters(plan_);
  std::vector<ParameterInfo> infos;
  for (const auto& parameter : parameters)
    infos.push_back({parameter.name, parameter.shape, dtype});
  const SliceGatherer gatherer(plan_, parameters, *mesh_);
  const bool writes = mesh_->rank() == 0;
  if (writes) sink.begin(infos);
  strategy_.params->set_access_order(forward_accesses(1));
  size_t next = 0;
  runner_.for_each_gathered("saving", [&](size_t block) {
    std::map<size_t, torch::Tensor> whole_masters;  // by unit
    for (const size_t unit : plan_.block_units[block]) {
      const zero::Unit& saved = plan_.units[unit];
      if (masters && saved.trainable && saved.blocks.front() == block) {
        whole_masters[unit] = whole_master(unit);
      }
    }
    for (; next < parameters.size() && parameters[next].block == block; ++next) {
      if (!gatherer.gathers_for_rank_0()) continue;
      std::vector<torch::Tensor> slices;
      for (const auto& [unit, i] : parameters[next].slices) {
        const zero::Slot& slot = plan_.units[unit].layout.slots()[i];
        const auto master = whole_masters.find(unit);
        slices.push_back(master == whole_masters.end()
                             ? plan_.units[unit].params[i].detach().to(dtype)
                             : master->second.narrow(0, slot.offset, slot.numel).view(slot.shape));
      }
      const torch::Tensor whole = gatherer.gather(next, slices);
      if (writes) sink.write(parameters[next].name, whole);
    }
  });
  strategy_.params->set_access_order({});
}

void TrainEngine::save_model(const std::filesystem::path& dir) {
  SafetensorsSink sink(dir);
  save_model(sink);
  if (mesh_->rank() == 0) sink.commit();
  comm::barrier(*mesh_);
}

ShardedState TrainEngine::sharded_state() {
  return {plan_, *strategy_.store, *strategy_.optimizer};
}

void TrainEngine::save_states(StateSink& sink) {
  engine::save_states(sharded_state(), sink);
}

RunCounters TrainEngine::counters() const {
  return {.steps = steps_,
          .applied_updates = applied_updates_,
          .nominal_divisor = normalizer_ ? normalizer_->nominal() : 0,
          .loss_scale = scaler_.state(),
          .plateau = lr_.state(),
          .skips = skips_.state()};
}

void TrainEngine::take_over(const RunCounters& counters) {
  batches_verified_ = false;
  steps_ = counters.steps;
  applied_updates_ = counters.applied_updates;
  normalizer_.reset();
  if (counters.nominal_divisor > 0)
    normalizer_.emplace(config_.loss_mean, counters.nominal_divisor);
  scaler_.restore(counters.loss_scale);
  lr_.restore(counters.plateau);
  skips_.restore(counters.skips);
}

std::optional<SavedCheckpoint> TrainEngine::end_checkpoint() {
  if (!checkpoints_.is_saving()) return std::nullopt;
  return checkpoints_.finish();
}

void TrainEngine::load_states(StateSource& source, const RunCounters& counters) {
  end_checkpoint();
  engine::load_states(sharded_state(), source);
  has_values_ = true;
  take_over(counters);
}

SavedCheckpoint TrainEngine::save_checkpoint(const std::filesystem::path& dir,
                                             const CheckpointRequest& request) {
  end_checkpoint();
  return checkpoints_.save(dir, values(), counters(), request);
}

std::optional<SavedCheckpoint> TrainEngine::start_checkpoint(const std::filesystem::path& dir,
                                                             const CheckpointRequest& request) {
  auto before = end_checkpoint();
  checkpoints_.start(dir, values(), counters(), request);
  return before;
}

std::vector<std::string> TrainEngine::keep_checkpoints(const std::filesystem::path& dir,
                                                       int64_t newest,
                                                       const std::set<int64_t>& steps) {
  return checkpoints_.keep(dir, newest, steps);
}

std::optional<LoadedCheckpoint> TrainEngine::load_checkpoint(const std::filesystem::path& path,
                                                             const LoadOptions& options) {
  end_checkpoint();
  const auto loaded = checkpoints_.load(path, values(), options);
  if (!loaded) return std::nullopt;
  has_values_ = true;
  if (options.parts != LoadedParts::kWeights) take_over(loaded->counters);
  return loaded->checkpoint;
}

zero::MemoryPlan TrainEngine::memory() const {
  return plan_memory(plan_, config_,
                     {.device = mesh_->device().type(), .saves_beside = saves_beside_});
}

std::vector<std::string> TrainEngine::notes() const {
  std::vector<std::string> notes = strategy_.shard_stores.notes();
  for (const std::string& note : saved_inputs_->notes()) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
  return notes;
}

int64_t TrainEngine::num_parameters() const {
  return count_parameters(plan_);
}

DecayCounts TrainEngine::decay_counts() const {
  return count_decay(plan_, config_.optimizer);
}

}  // namespace zeroth::engine
