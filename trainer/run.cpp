#include "trainer/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>

#include "base/error.h"
#include "base/printable.h"
#include "base/standard_streams.h"
#include "base/units.h"
#include "comm/agreement.h"
#include "comm/rank_threads.h"
#include "engine/memory_remedies.h"
#include "engine/start.h"
#include "engine/tensor_ranks.h"
#include "model/blocks/build.h"
#include "model/hf/checkpoint_source.h"
#include "trainer/failure.h"
#include "trainer/finished_run.h"
#include "trainer/out_of_memory.h"
#include "trainer/output.h"
#include "trainer/report/reporter.h"
#include "trainer/trainer.h"

namespace zeroth::trainer {
namespace {

// LibTorch then takes other kernels where the usual ones add in the order in which they finish, and
// refuses what has none. What it does for the sake of tests, filling new memory, is left out.
void repeat_bits() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// Null for a run that goes on: its weights are in a checkpoint.
std::shared_ptr<model::WeightSource> open_weights(const RunPlan& plan) {
  if (plan.resumed) return nullptr;
  return as_written(plan.round, [&] {
    return model::open_weights(plan.flags.model, plan.spec, plan.config.seed);
  });
}

// Rank 0 checks it, and prints that nothing is left to do.
bool is_finished(const RunPlan& plan, comm::Mesh& mesh) {
  if (!plan.resumed) return false;
  const std::string text = mesh.rank() == 0 ? finished_text(plan) : "";
  const int64_t finished = text.empty() ? 0 : 1;
  if (comm::greatest_over_ranks(finished, "whether anything is left to do", mesh) == 0)
    return false;
  if (!text.empty()) {
    (void)write_all(STDOUT_FILENO, printable_message(fmt::format("{:<10} {}\n", "finished", text)));
  }
  return true;
}

// Names the phase before the first step, or before a checkpoint is read.
std::string preparation(const RunPlan& plan) {
  if (plan.resumed) return "making room for the model";
  const configs::ZeroConfig& zero = plan.config.zero;
  const auto in_files = [](const auto& offload) {
    return offload.device == configs::RestingPlace::kNvme;
  };
  std::string text = "reading weights";
  if (in_files(zero.offload_param))
    return text + " and writing them to " + zero.offload_param.nvme_path;
  if (plan.trains() && in_files(zero.offload_optimizer)) {
    text += " and writing them to " + zero.offload_optimizer.nvme_path;
  }
  return text;
}

}  // namespace

int Run::execute(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
                 const RunClock& clock, StopSignal& stop) {
  try {
    return go(plan, memory, env, clock, stop);
  } catch (...) {
    const auto failed = failed_allocation(std::current_exception());
    if (!failed) throw;
    using Lacks = engine::MemoryFacts::Lacks;
    const bool on_gpus = mesh_ != nullptr && mesh_->device().is_cuda();
    const Lacks lacks = failed->on_gpu ? Lacks::kDevice : on_gpus ? Lacks::kHost : Lacks::kShared;
    const auto remedies = engine::memory_remedies(plan.config, {.world_size = plan.data_ranks(),
                                                                .seq_len = plan.samples.seq_len,
                                                                .trains = plan.trains(),
                                                                .lacks = lacks});
    const std::string doing = engine_ ? engine_->doing() : "the building of the model";
    throw Error("{}", out_of_memory_text(*failed, doing, remedies));
  }
}

// Whether the weights are read; false: a signal came before they were.
bool Run::load(const RunPlan& plan, const StopSignal& stop, Reporter& reporter) {
  auto phase = reporter.begin({.name = preparation(plan)});
  try {
    engine_ = engine::initialize(
        model::build_blocks(plan.spec, engine::tensor_ranks(*mesh_, plan.config)), plan.config,
        mesh_,
        {.weights = open_weights(plan),
         .awaits_checkpoint = plan.resumed.has_value(),
         .trains = plan.trains(),
         .checks_memory = false,  // main has, before the ranks connected
         .wants_end = [&stop] { return stop.number() != 0; },
         .on_read = [&](int64_t done, int64_t all) { reporter.advance(done, all); },
         .saves_beside_training = plan.saves_beside(),
         .saved_model = engine::SavedModel{plan.spec, plan.flags.save_dtype}});
    phase.finish();
    return true;
  } catch (const engine::EndWanted&) {
    return false;
  }
}

int Run::go(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
            const RunClock& clock, StopSignal& stop) {
  if (plan.flags.deterministic) repeat_bits();
  mesh_ = comm::make_mesh(env, on_stuck_);
  engine::arrange(*mesh_, plan.config);
  comm::set_num_threads(env, *mesh_);
  // As many as before: sums of another number of threads may have other bits.
  if (const int64_t threads = plan.kept.threads; threads > 0 && !env.num_threads) {
    at::set_num_threads(static_cast<int>(threads));
  }
  const auto lock = lock_output(plan, *mesh_);  // before any file is opened, which is another run's
  if (is_finished(plan, *mesh_)) return 0;
  Reporter reporter(plan, memory, env, clock);
  reporter.guard(lock.get());
  if (lock && !lock->note().empty()) reporter.note(lock->note());
  if (plan.resumed) reporter.will_go_on();
  reporter.planned(*mesh_, env, at::get_num_threads());
  stop.heed();
  if (!load(plan, stop, reporter)) {
    const auto signal = stop.of_all_ranks(*mesh_);
    reporter.interrupted({.signal = signal_name(signal), .since_start_s = clock.seconds()},
                         "nothing is saved");
    return signal;
  }
  reporter.started(*engine_);
  const int signal = Trainer(plan, *engine_, reporter, stop).run();
  if (signal == 0) reporter.finished();
  return signal;
}

}  // namespace zeroth::trainer
