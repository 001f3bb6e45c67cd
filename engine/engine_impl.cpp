#include "engine/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "engine/verify/stop_agreement.h"
#include "engine/verify/verify_ranks_match.h"
#include "zero/dtype.h"

namespace zeroth::engine {
namespace {

// Returns the factor of gradients that clips their norm as torch's clip_grad_norm_ and DeepSpeed
// do: max_norm / (norm + 1e-6) if that is below 1. A norm that is not finite, which the
// configuration ignores here, is not clipped; nor is any with `max_norm` 0.
double clip_factor(double max_norm, double norm) {
  return max_norm > 0 && std::isfinite(norm) ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

// Returns this rank's addend of the squared norm. Those of a pipeline's units are exchanged per
// unit and added in the chain's order by the ranks of the first part; the others add zero.
torch::Tensor norm_in_chain_order(const torch::Tensor& squares, const comm::DeviceMesh& mesh) {
  if (mesh.layout().shape()[comm::MeshDim::kPp] == 1) return squares.sum();
  mesh.group({comm::MeshDim::kPp}).all_reduce(squares, comm::ReduceOp::kSum, "norms").wait();
  const bool adds = mesh.coordinate(comm::MeshDim::kPp) == 0;
  return adds ? squares.sum() : torch::zeros({}, squares.options());
}

}  // namespace

Engine::Impl::Impl(model::Blocks blocks, const configs::Config& config,
                   std::shared_ptr<comm::DeviceMesh> mesh, const InitOptions& options,
                   std::shared_ptr<device::HostLink> link)
    : config_(config),
      mesh_(std::move(mesh)),
      blocks_(std::move(blocks)),
      partition_(partition_blocks(blocks_, config_.pipeline, options.block_times)),
      plan_(zero::plan_units(blocks_, *mesh_,
                             {.trains = options.trains,
                              .saves_frozen = options.saves_frozen,
                              .min_coded_elements = optim::min_coded_elements(config_.optimizer),
                              .block_pp_ranks = partition_.block_pp_ranks()})),
      strategy_(zero::make_strategy(plan_, config_, *mesh_, std::move(link))),
      lr_(config_.scheduler, config_.optimizer),
      scaler_(optim::make_loss_scaler(config_)),
      first_trained_(zero::first_trained_block(plan_)),
      schedule_(plan_step(partition_, config_, config_.batch.accumulation_steps, first_trained_,
                          plan_.pp_rank)),
      link_(*mesh_, partition_, plan_.block_labels),
      saved_inputs_(make_saved_inputs(blocks_.size() * static_cast<size_t>(schedule_.max_in_flight),
                                      config_.recompute, mesh_->device())),
      runner_(blocks_, *strategy_.params, *strategy_.grads),
      expert_loads_(blocks_, *mesh_),
      profiler_(config_, *mesh_),
      checkpointer_(*mesh_, {sharded_state(), config_, strategy_.description, options.saved_model}),
      saves_beside_(options.saves_beside_training),
      skips_(make_non_finite_skips(config_)),
      has_values_(!options.awaits_checkpoint) {
  if (!options.trains)
    decision_.failure = "train_batch: the engine was created for evaluation only";
}

StepStats Engine::Impl::train_batch(DataLoader& data) {
  if (!decision_.failure.empty()) throw Error(decision_.failure);
  require_values("train_batch");
  StepStats stats;
  profiler_.begin(steps_, std::exchange(traces_next_step_, false));
  strategy_.grads->reset();  // also after a step that threw
  expert_loads_.begin_step();
  const OffloadTimes offload_before = offload_times();
  const double waited_before = pipe_waited_seconds();
  StepBatches step(data, config_.batch.accumulation_steps, mesh_->device());
  runner_.inspect_outputs(skips_.in_a_row());
  runner_.set_block_timer(profiler_.block_timer());
  const torch::Tensor loss = run_micro_batches(step);
  const double waited_until_reduce = pipe_waited_seconds();
  link_.finish();
  const torch::Tensor squares = norm_in_chain_order(strategy_.grads->finish(), *mesh_);
  const bool unused =
      !config_.zero.ignore_unused_parameters && has_unused_parameters(plan_, *strategy_.grads);
  const StepTotals own = {.flags = {.stop_requests = data.stop_requested(),
                                    .save_requests = data.save_requested(),
                                    .writing = checkpointer_.writes(),
                                    .unused = unused},
                          .counts = reports_batch(*mesh_) ? step.counts() : TokenCounts(),
                          .pipe_idle = own_idle(pipe_waited_seconds() - waited_before)};
  const torch::Tensor &aux_losses = expert_loads_.losses(), &counts = expert_loads_.counts();
  const torch::Tensor totals =
      pack_totals({loss + aux_losses[0], squares, aux_losses[1], counts}, own);
  mesh_->world().all_reduce(totals, comm::ReduceOp::kSum, "loss and norm of the step").wait();
  profiler_.end_phase(StepPhase::kReduce, pipe_waited_seconds() - waited_until_reduce);
  const StepTotals sums = unpack_totals(totals, counts.numel());
  if (sums.counts.num_label_tokens == 0) throw_no_label_tokens(step, steps_ + 1, *mesh_);
  if (sums.flags.unused > 0) throw_unused_parameter(plan_, *strategy_.grads, steps_ + 1, *mesh_);

  const double normalization = normalizer_->normalization(sums.counts);
  const double grad_factor = strategy_.factors.after / scaler_.scale() * normalization;
  stats.step = ++steps_;
  stats.loss = sums.loss * normalization;
  stats.aux_loss = sums.aux_loss * normalization;
  stats.expert_tokens = expert_loads_.by_block(sums.expert_counts);
  stats.grad_norm = std::sqrt(sums.squares) * grad_factor;
  stats.tokens = sums.counts.tokens;
  stats.num_label_tokens = sums.counts.num_label_tokens;
  stats.pipe_idle = sums.pipe_idle;
  decision_ = {.stop_requested = sums.flags.stop_requests > 0,
               .save_requested = sums.flags.save_requests > 0,
               .checkpoint_written = checkpointer_.set_ranks_writing(sums.flags.writing)};
  finish_step(stats, grad_factor);
  checkpointer_.after_update();
  profiler_.end_phase(StepPhase::kUpdate);
  profiler_.report(blocks_, stats);
  report_offload(offload_before, stats);
  return stats;
}

std::string Engine::Impl::current_operation() const {
  const std::string operation = runner_.current_operation();
  if (operation.empty() || partition_.ranks == 1) return operation;
  return fmt::format("{} (stage {})", operation, plan_.pp_rank);
}

// Includes the wait of a rank whose passes end first, for the norms.
double Engine::Impl::pipe_waited_seconds() const {
  if (partition_.ranks == 1) return 0;
  return link_.waited_seconds() + mesh_->group({comm::MeshDim::kPp}).times().waiting_s;
}

std::vector<double> Engine::Impl::own_idle(double seconds) const {
  if (partition_.ranks == 1) return {};
  std::vector<double> idle(static_cast<size_t>(partition_.ranks), 0.0);
  const auto sharing = static_cast<double>(mesh_->world_size()) / static_cast<double>(idle.size());
  idle[static_cast<size_t>(plan_.pp_rank)] = seconds / sharing;
  return idle;
}

OffloadTimes Engine::Impl::offload_times() const {
  return {.update = strategy_.params->pending_update_seconds(),
          .traffic = strategy_.shard_stores.traffic()};
}

void Engine::Impl::report_offload(const OffloadTimes& before, StepStats& stats) const {
  const OffloadTimes now = offload_times();
  stats.offload = {.update = now.update - before.update, .traffic = now.traffic - before.traffic};
  // A GPU's clock does not include concurrent work of the CPU.
  if (!mesh_->device().is_cpu()) return;
  stats.times.forward -= stats.offload.update;
  stats.times.update += stats.offload.update;
}

std::optional<std::vector<int64_t>> Engine::Impl::leading_extents(const StepBatches& batches,
                                                                  int64_t micro_batch) const {
  const int tensor_size = mesh_->layout().shape()[comm::MeshDim::kTp];
  auto sizes = batches.token_sizes(micro_batch);
  if (!sizes || tensor_size == 1) return sizes;
  const int64_t tokens = c10::multiply_integers(*sizes);
  return std::vector<int64_t>{(tokens + tensor_size - 1) / tensor_size};
}

model::MicroBatch Engine::Impl::next_batch(StepBatches& batches, int64_t micro_batch) const {
  model::MicroBatch batch = batches.next();
  // What another rank sends of the next one can then be received at once.
  if (partition_.ranks > 1) batches.fetch_until(micro_batch + 2);
  return batch;
}

Engine::Impl::MicroBatchInFlight& Engine::Impl::micro_batch_of(const PipeOp& op,
                                                               StepBatches& batches,
                                                               MicroBatchesInFlight& in_flight) {
  // Micro-batches begin and end in their order, so that none meets another one in its place.
  const auto place = static_cast<size_t>(op.micro_batch) % in_flight.size();
  if (!in_flight[place]) {
    in_flight[place] = {
        .batch = next_batch(batches, op.micro_batch),
        .tape = Tape(blocks_.size(), first_trained_ + 1, saved_inputs_, place),
        .ops_left = schedule_.ops.size() / static_cast<size_t>(config_.batch.accumulation_steps)};
    prepare(in_flight[place]->batch);
    profiler_.end_phase(StepPhase::kData);
  }
  return *in_flight[place];
}

torch::Tensor Engine::Impl::run_forward(const PipeOp& op, MicroBatchInFlight& current) {
  current.x = link_.receive_input(op, std::move(current.x));
  torch::Tensor y = runner_.forward(schedule_.chunks[op.chunk], std::move(current.x), current.batch,
                                    current.tape);
  if (op.chunk + 1 == schedule_.chunks.size()) {
    const int64_t labels = reports_batch(*mesh_) ? count_label_tokens(current.batch) : 0;
    expert_loads_.finish_forward(current.batch,
                                 static_cast<double>(labels) / current.batch.loss_normalizer);
  }
  if (schedule_.computes_loss(op.chunk)) {
    current.dy = current.batch.loss_gradient;
    return y.to(torch::kDouble);
  }
  current.x = link_.send_output(op, std::move(y));
  return {};
}

void Engine::Impl::run_backward(const PipeOp& op, MicroBatchInFlight& current,
                                const std::function<void()>& prefetch_next) {
  const ModelChunk& chunk = schedule_.chunks[op.chunk];
  if (first_trained_ >= chunk.back().end) return;  // nothing up to here is trained
  if (op.kind == PipeOpKind::kBackwardWeight) return runner_.backward_weight(chunk, current.tape);
  current.dy = link_.receive_gradient(op, std::move(current.dy));
  current.dy = runner_.backward(chunk, op.kind, std::move(current.dy), current.batch, current.tape,
                                prefetch_next);
  current.dy = link_.send_gradient(op, std::move(current.dy));
}

torch::Tensor Engine::Impl::run_micro_batches(StepBatches& step) try {
  torch::Tensor loss =
      torch::zeros({}, torch::TensorOptions(mesh_->device()).dtype(torch::kDouble));
  if (!normalizer_) normalizer_ = make_loss_normalizer(step.count_positions(), config_, *mesh_);
  if (!std::exchange(batches_verified_, true) && shares_batches(*mesh_)) {
    step.fetch_until(config_.batch.accumulation_steps);
    for (const model::MicroBatch& batch : step.fetched())
      verify_batches_match(batch, steps_ + 1, *mesh_);
  }
  strategy_.grads->set_backward_order(backward_order(schedule_));
  link_.begin(partition_.schedule, config_.batch.accumulation_steps, /*trains=*/true,
              first_trained_,
              [&](int64_t micro_batch) { return leading_extents(step, micro_batch); });
  MicroBatchesInFlight in_flight(static_cast<size_t>(schedule_.max_in_flight));
  for (size_t i = 0; i < schedule_.ops.size(); ++i) {
    const PipeOp& op = schedule_.ops[i];
    // Gathers prefetch no further than the next period, which accesses every block.
    if (i % schedule_.period == 0) strategy_.params->set_access_order(block_accesses(schedule_, i));
    MicroBatchInFlight& current = micro_batch_of(op, step, in_flight);
    const double waited_before = link_.waited_seconds();
    if (op.kind == PipeOpKind::kForward) {
      const torch::Tensor own = run_forward(op, current);
      if (own.defined()) loss += own;
    } else {
      const PipeOp* const next = i + 1 < schedule_.ops.size() ? &schedule_.ops[i + 1] : nullptr;
      run_backward(op, current, [&] {
        if (next == nullptr || next->kind == PipeOpKind::kForward) return;
        BlockRunner::prefetch_input(schedule_.chunks[next->chunk],
                                    micro_batch_of(*next, step, in_flight).tape);
      });
    }
    profiler_.end_phase(op, schedule_.chain_chunk(op.chunk),
                        link_.waited_seconds() - waited_before);
    if (--current.ops_left == 0)
      in_flight[static_cast<size_t>(op.micro_batch) % in_flight.size()].reset();
  }
  strategy_.params->set_access_order({});
  return reports_loss(*mesh_) ? loss : torch::zeros_like(loss);
} catch (...) {
  step.skip_remaining();
  throw;
}

void Engine::Impl::prepare(model::MicroBatch& batch) const {
  expert_loads_.prepare(batch);
  batch.loss_normalizer = normalizer_->divisor(count_label_tokens(batch));
  batch.grad_scale = scaler_.scale() * strategy_.factors.before;
  batch.loss_gradient =
      torch::full({}, batch.grad_scale, batch.tokens.options().dtype(torch::kFloat));
}

void Engine::Impl::finish_step(StepStats& stats, double grad_factor) {
  stats.lr = lr_.at(applied_updates_);
  stats.loss_scale = scaler_.scale();
  const bool finite = std::isfinite(stats.grad_norm);
  const bool looks =
      config_.check_grad_overflow || zero::working_dtype(config_) != torch::kBFloat16;
  stats.skipped = looks && !finite;
  if (finite) {
    skips_.clean_step();
  } else {
    const NonFiniteSkips::Skip skip{.step = stats.step,
                                    .loss_scale = stats.loss_scale,
                                    .at_floor = scaler_.at_floor(),
                                    .applied = !stats.skipped,
                                    .bad_output = runner_.first_bad_output()};
    decision_.failure = skips_.not_finite(skip, plan_, strategy_, *mesh_);
    stats.not_finite = skips_.since();
  }
  if (!stats.skipped) {
    optim::UpdateStep step = optim::default_step(config_.optimizer, applied_updates_ + 1);
    step.lr = stats.lr;
    step.betas = lr_.betas_at(applied_updates_);
    step.grad_factor = clip_factor(config_.gradient_clipping, stats.grad_norm) * grad_factor;
    step.rounding_seed = config_.seed;
    strategy_.params->step(step);
    ++applied_updates_;
  }
  scaler_.update(stats.skipped);
  stats.next_lr = lr_.at(applied_updates_);
  stats.next_betas = lr_.betas_at(applied_updates_);
  stats.skipped_total = steps_ - applied_updates_;
}

// Throws an Error if ranks pass different numbers, as they would wait for each other until the
// timeout.
void Engine::Impl::verify_micro_batches_match(int64_t micro_batches) const {
  std::array min_counts = {micro_batches, -micro_batches};
  comm::all_reduce_values(min_counts, comm::ReduceOp::kMin, "numbers of micro-batches", *mesh_);
  const int64_t min_micro_batches = min_counts[0], max_micro_batches = -min_counts[1];
  if (min_micro_batches != max_micro_batches) {
    throw Error(
        "eval_batch: ranks pass different numbers of micro-batches, from {} to {} (rank {}: {})",
        min_micro_batches, max_micro_batches, mesh_->rank(), micro_batches);
  }
}

void Engine::Impl::require_values(std::string_view call) const {
  if (has_values_) return;
  throw Error("{}: the engine awaits a checkpoint. Call load_checkpoint first", call);
}

void Engine::Impl::evaluate_group(StepBatches& drawn, int64_t first, int64_t micro_batches,
                                  const torch::Tensor& sums) {
  const StepSchedule schedule = plan_evaluation(partition_, micro_batches, plan_.pp_rank);
  std::vector<size_t> accesses = block_accesses(schedule);
  // The next group's first gathers overlap with this one's last blocks.
  accesses.insert(accesses.end(), accesses.begin(), accesses.end());
  strategy_.params->set_access_order(accesses);
  link_.begin(evaluation_schedule(partition_), micro_batches, /*trains=*/false, first_trained_,
              [&](int64_t micro_batch) { return leading_extents(drawn, first + micro_batch); });
  struct Evaluated {
    model::MicroBatch batch;
    torch::Tensor x = {};
  };
  std::map<int64_t, Evaluated> in_flight;  // by micro-batch
  for (const PipeOp& op : schedule.ops) {
    Evaluated& current = in_flight[op.micro_batch];
    if (op.chunk == 0) {
      current.batch = next_batch(drawn, first + op.micro_batch);
      if (first + op.micro_batch == 0) verify_batches_match(current.batch, steps_, *mesh_);
      current.batch.sample_seeds.clear();  // disables dropout
      current.batch.loss_normalizer = 1;   // sum over tokens, divided once at the end
    }
    current.x = link_.receive_input(op, std::move(current.x));
    current.x = runner_.evaluate(schedule.chunks[op.chunk], std::move(current.x), current.batch);
    if (schedule.computes_loss(op.chunk) && reports_loss(*mesh_)) {
      sums[0] += current.x.to(torch::kDouble);
      sums[1] += static_cast<double>(count_label_tokens(current.batch));
    }
    current.x = link_.send_output(op, std::move(current.x));
    if (op.chunk + 1 == schedule.chunks.size()) in_flight.erase(op.micro_batch);
  }
  link_.finish();
}

EvalStats Engine::Impl::eval_batch(DataLoader& data, int64_t micro_batches) {
  require_values("eval_batch");
  torch::Tensor sums =
      torch::zeros({2}, torch::TensorOptions(mesh_->device()).dtype(torch::kDouble));
  verify_micro_batches_match(micro_batches);
  StopAgreement end(*mesh_, [&] { return data.stop_requested(); });
  StepBatches drawn(data, micro_batches, mesh_->device());
  // Ranks ask each other for a stop where nothing is between them.
  const int64_t group = evaluation_group(partition_);
  for (int64_t done = 0; done < micro_batches; done += group) {
    if (end.stop_agreed()) {
      strategy_.params->set_access_order({});
      return {.stop_requested = true};
    }
    evaluate_group(drawn, done, std::min(group, micro_batches - done), sums);
  }
  strategy_.params->set_access_order({});
  sums = sums.to(torch::kCPU);
  mesh_->cpu_group().all_reduce(sums, comm::ReduceOp::kSum, "loss of the evaluation").wait();
  const double tokens = sums[1].item<double>();
  if (tokens == 0) throw Error("the evaluation set has no label tokens");
  return {.loss = sums[0].item<double>() / tokens,
          .num_label_tokens = static_cast<int64_t>(tokens)};
}

RunCounters Engine::Impl::counters() const {
  return {.steps = steps_,
          .applied_updates = applied_updates_,
          .nominal_divisor = normalizer_ ? normalizer_->nominal() : 0,
          .loss_scale = scaler_.state(),
          .plateau = lr_.state(),
          .skips = skips_.state()};
}

void Engine::Impl::take_over(const RunCounters& counters) {
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

}  // namespace zeroth::engine
