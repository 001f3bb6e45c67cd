#include "trainer/rank_run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/machine/standard_streams.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "comm/cpu_collectives.h"
#include "comm/rank_threads.h"
#include "engine/memory/memory_remedies.h"
#include "engine/start.h"
#include "trainer/failure.h"
#include "trainer/output.h"
#include "trainer/report/reporter.h"
#include "trainer/run_adapter.h"
#include "trainer/run_plan.h"
#include "trainer/start_point.h"
#include "trainer/trainer.h"

namespace zeroth::trainer {
namespace {

// Makes LibTorch use other kernels for those that add in the order in which they finish, and reject
// operations without such a kernel. Filling of new memory, which serves tests, stays off.
void enable_determinism() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// Returns whether nothing is left to do; rank 0 checks that and prints the message.
bool is_finished(const RunPlan& plan, comm::DeviceMesh& mesh) {
  if (!plan.resume_plan) return false;
  const std::string text = mesh.rank() == 0 ? finished_message(plan) : "";
  const int64_t finished = text.empty() ? 0 : 1;
  if (comm::max_over_ranks(finished, "whether anything is left to do", mesh) == 0) return false;
  if (!text.empty()) {
    (void)write_all(STDOUT_FILENO, printable_message(fmt::format("{:<10} {}\n", "finished", text)));
  }
  return true;
}

// Names the phase before the first step, or before a checkpoint is read.
std::string preparation_phase(const RunPlan& plan) {
  if (plan.resume_plan) return "allocating the model";
  const configs::ZeroConfig& zero = plan.config.zero;
  std::string directory = zero.offload_param.file_directory();
  if (directory.empty() && plan.trains()) directory = zero.offload_optimizer.file_directory();
  return directory.empty() ? "reading weights" : "reading weights and writing them to " + directory;
}

// Returns the blocks' times, which rank 0 alone has measured, on all ranks.
std::vector<double> times_of_rank_zero(const RunPlan& plan, const engine::RunMemory& memory,
                                       const comm::DeviceMesh& mesh) {
  if (!plan.config.pipeline.is_on()) return {};
  torch::Tensor times = torch::zeros({plan.spec.num_layers + 2}, torch::kDouble);
  if (mesh.rank() == 0) times = torch::tensor(memory.options.block_times, torch::kDouble);
  mesh.cpu_group().broadcast(times, /*root=*/0, "times of blocks").wait();
  return {times.data_ptr<double>(), times.data_ptr<double>() + times.numel()};
}

}  // namespace

int RankRun::execute(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
                     const RunTimer& clock, StopSignal& stop) {
  try {
    return run_steps(plan, memory, env, clock, stop);
  } catch (...) {
    const auto failed = failed_allocation(std::current_exception());
    if (!failed) throw;
    using Shortage = engine::MemoryFacts::Shortage;
    const bool on_gpus = mesh_ != nullptr && mesh_->device().is_cuda();
    const Shortage shortage = failed->on_gpu ? Shortage::kDevice
                              : on_gpus      ? Shortage::kHost
                                             : Shortage::kShared;
    const auto remedies =
        engine::memory_remedies(plan.config, {.world_size = plan.data_parallel_size(),
                                              .seq_len = plan.samples.seq_len,
                                              .trains = plan.trains(),
                                              .shortage = shortage});
    const std::string doing =
        engine_ ? engine_->current_operation() : "initialization of the model";
    throw Error("{}", out_of_memory_message(*failed, doing, remedies));
  }
}

// Returns whether the weights are read; false if a signal came first.
bool RankRun::load_model(const RunPlan& plan, std::vector<double> block_times,
                         const StopSignal& stop, Reporter& reporter) {
  auto phase = reporter.begin({.name = preparation_phase(plan)});
  try {
    engine::SavedModel saved{plan.spec, plan.flags.save_dtype};
    if (plan.adapter) saved.adapter = plan.adapter->plan;
    engine_ = engine::initialize(
        build_blocks(plan, plan.spec, engine::tensor_parallel_group(*mesh_, plan.config)),
        plan.config, mesh_,
        {.weights = open_weights(plan),
         .awaits_checkpoint = plan.resume_plan.has_value(),
         .trains = plan.trains(),
         .saves_frozen = !plan.adapter,
         .checks_memory = false,  // main has, before the ranks connected
         .block_times = std::move(block_times),
         .stop_requested = [&stop] { return stop.signal() != 0; },
         .on_read = [&](int64_t done, int64_t all) { reporter.advance(done, all); },
         .saves_beside_training = plan.saves_async(),
         .saved_model = std::move(saved)});
    phase.finish();
    return true;
  } catch (const engine::StopRequested&) {
    return false;
  }
}

int RankRun::run_steps(const RunPlan& plan, const engine::RunMemory& memory,
                       const comm::RankEnv& env, const RunTimer& clock, StopSignal& stop) {
  if (plan.flags.deterministic) enable_determinism();
  mesh_ = comm::make_mesh(env, on_hang_);
  engine::arrange(*mesh_, plan.config);
  comm::set_num_threads(env, *mesh_);
  // Use as many threads as before: sums with another number may differ in bits.
  if (const int64_t threads = plan.kept_numerics.threads; threads > 0 && !env.num_threads) {
    at::set_num_threads(static_cast<int>(threads));
  }
  const auto lock = lock_output(plan, *mesh_);  // before any file of another run is opened
  if (is_finished(plan, *mesh_)) return 0;
  Reporter reporter(plan, memory, env, clock);
  reporter.guard(lock.get());
  if (lock && !lock->warning().empty()) reporter.note(lock->warning());
  if (plan.resume_plan) reporter.expect_resume();
  reporter.print_summary(*mesh_, env, at::get_num_threads());
  stop.enable();
  if (!load_model(plan, times_of_rank_zero(plan, memory, *mesh_), stop, reporter)) {
    const auto signal = stop.signal_of_any_rank(*mesh_);
    reporter.log_interruption({.signal = signal_name(signal), .since_start_s = clock.seconds()},
                              "nothing is saved");
    return signal;
  }
  reporter.start(*engine_);
  const int signal = Trainer(plan, *engine_, reporter, stop).run();
  if (signal == 0) reporter.finish();
  return signal;
}

}  // namespace zeroth::trainer
