// The program `finetune`: one rank of a fine-tuning run.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/machine/host_limits.h"
#include "base/machine/process_limits.h"
#include "base/machine/signals.h"
#include "base/machine/standard_streams.h"
#include "comm/bootstrap/rank_bootstrap.h"
#include "comm/bootstrap/rank_env.h"
#include "comm/device_mesh.h"
#include "engine/memory/memory_check.h"
#include "trainer/failure.h"
#include "trainer/flags/flags.h"
#include "trainer/output.h"
#include "trainer/rank_run.h"
#include "trainer/report/config_text.h"
#include "trainer/report/metrics.h"
#include "trainer/report/phase_progress.h"
#include "trainer/report/progress.h"
#include "trainer/report/summary.h"
#include "trainer/run_adapter.h"
#include "trainer/run_memory.h"
#include "trainer/run_plan.h"
#include "trainer/stop_signal.h"

namespace {

using namespace zeroth;

// Delay before another rank reports an error. Every rank finds an error before the connection on
// its own, and rank 0 reports it; a launcher ends the others within this time.
constexpr std::chrono::seconds kRankZeroDelay{2};

int print_on_rank_zero(const std::string& text, const comm::RankEnv& env) {
  if (env.rank == 0) print_output(text);
  return 0;
}

// Calls `read` with what shows a phase that takes long, such as reading data: null unless `shows`.
template <typename Read>
auto with_phases(const comm::RankEnv& env, const trainer::RunTimer& clock, bool shows,
                 const Read& read) {
  trainer::Progress progress({.columns = env.terminal_columns},
                             [](std::string_view text) { write_all(STDOUT_FILENO, text); });
  trainer::PhaseProgress phases(progress, [&clock] { return clock.seconds(); });
  if (shows) phases.start_ticking();
  return trainer::rethrow_as_usage_error(env.attempt,
                                         [&] { return read(shows ? &phases : nullptr); });
}

trainer::RunPlan plan_run(trainer::Flags flags, const comm::RankEnv& env,
                          const trainer::RunTimer& clock) {
  const bool shows = env.rank == 0 && !flags.only_prints();
  return with_phases(env, clock, shows, [&](trainer::PhaseProgress* phases) {
    return trainer::make_plan(std::move(flags), env.world_size, comm::device_type(env), env.attempt,
                              phases);
  });
}

int inspect(const trainer::RunPlan& plan, const comm::RankEnv& env) {
  if (env.rank > 0) return 0;
  trainer::inspect_samples(plan, /*colored=*/env.terminal_columns.has_value(), print_output,
                           [](std::string_view text) { fmt::print(stderr, "{}", text); });
  return 0;
}

int tokenize(const trainer::Flags& flags, const comm::RankEnv& env,
             const trainer::RunTimer& clock) {
  if (env.rank > 0) return 0;
  return print_on_rank_zero(with_phases(env, clock, /*shows=*/true,
                                        [&](trainer::PhaseProgress* phases) {
                                          return trainer::tokenize_data(flags, phases);
                                        }),
                            env);
}

int merge(const trainer::Flags& flags, const comm::RankEnv& env) {
  if (env.rank > 0) return 0;
  return print_on_rank_zero(
      trainer::rethrow_as_usage_error(env.attempt, [&] { return trainer::merge_adapter(flags); }),
      env);
}

// Returns notes for --print-config. A machine that cannot write to nvme_path need not be a node of
// the run.
std::vector<std::string> collect_offload_notes(const trainer::RunPlan& plan,
                                               const comm::RankEnv& env) {
  try {
    return trainer::offload_notes(trainer::run_memory(plan, env.local_size));
  } catch (const Error&) {
    return {};
  }
}

// Exits from any thread, without the destructors of what connects the ranks.
[[noreturn]] void exit_with_error(const std::exception_ptr& error, const comm::RankEnv& env,
                                  bool all_ranks, const trainer::Spellings& spellings = {}) {
  const auto failure = trainer::describe(error, env.rank, all_ranks ? 1 : env.world_size);
  write_last_message(spellings.as_typed(failure.message));
  std::_Exit(failure.code);
}

// Exits from a run whose own objects are destroyed. LibTorch's tables of operators are left to the
// system: destroying them takes a quarter of a short run. A sanitizer checks what is left.
[[noreturn]] void exit_process(int code) {
  if constexpr (ZEROTH_SANITIZED) std::exit(code);
  std::fflush(nullptr);  // output of libraries
  std::quick_exit(code);
}

int run_rank(int argc, char** argv) {
  open_standard_streams();
  install_sigbus_handler("finetune");
  retain_freed_memory();
  std::optional<trainer::StopSignal> stop;
  comm::RankEnv env;
  trainer::Spellings spellings;  // of this command line, for messages
  trainer::RankRun run([&env](const std::string& message) {
    exit_with_error(std::make_exception_ptr(Error(message)), env, /*all_ranks=*/false);
  });
  bool connecting = false;
  try {
    raise_open_file_limit(kRankOpenFiles);
    stop.emplace();  // before any thread
    env = trainer::rethrow_as_usage_error({}, comm::RankEnv::from_environment);
    if (env.world_size > 1) install_sigbus_handler(fmt::format("finetune: rank {}", env.rank));
    const trainer::RunTimer clock(env.launch_time);
    trainer::Flags flags = trainer::rethrow_as_usage_error(env.attempt, [&] {
      return trainer::parse_flags({argv + 1, argv + argc});
    });
    spellings = flags.spellings;
    if (!flags.answer.empty()) return print_on_rank_zero(flags.answer, env);
    if (flags.overwrite_cache) {  // by an earlier run
      flags.token_cache.newer_than = clock.start_time();
    }
    if (flags.tokenize) return tokenize(flags, env, clock);
    if (flags.merge) return merge(flags, env);
    for (const std::string& warning : env.warnings) warn(flags.notes, "", "{}", warning);
    if (flags.use_cpu) env.accelerator = "cpu";
    comm::load_device(env);
    if (flags.timeout_s) env.timeout = std::chrono::seconds(*flags.timeout_s);
    if (!flags.only_prints()) comm::resolve_attempt(env);
    const trainer::RunPlan plan = plan_run(std::move(flags), env, clock);
    if (plan.flags.print_config) {
      return print_on_rank_zero(trainer::config_text(plan, collect_offload_notes(plan, env)), env);
    }
    if (plan.flags.inspect_samples) return inspect(plan, env);
    if (env.rank == 0) {
      trainer::rethrow_as_usage_error(plan.attempt, [&] {
        trainer::require_writable(plan);
        trainer::require_disk_space(plan);
      });
    }
    engine::RunMemory memory = trainer::run_memory(plan, env.local_size);
    engine::require_memory(memory);
    if (env.rank == 0) {  // only rank 0 reports the memory of activations
      memory = engine::with_activations(std::move(memory), trainer::measure_activations(plan));
      engine::require_memory(memory);
    }
    connecting = true;
    const int signal = run.execute(plan, memory, env, clock, *stop);
    return signal == 0 ? 0 : trainer::kSignalCode + signal;
  } catch (...) {
    const bool all_ranks = !connecting && env.rank == 0;
    if (!connecting && env.rank > 0) std::this_thread::sleep_for(kRankZeroDelay);
    exit_with_error(std::current_exception(), env, all_ranks, spellings);
  }
}

}  // namespace

int main(int argc, char** argv) {
  exit_process(run_rank(argc, argv));
}
