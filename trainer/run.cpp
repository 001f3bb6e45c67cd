#include "trainer/run.h"

#include <ATen/Parallel.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "model/build.h"
#include "model/checkpoint_source.h"
#include "trainer/metrics.h"
#include "trainer/progress.h"
#include "trainer/summary.h"
#include "trainer/trainer.h"

namespace zeroth::trainer {
namespace {

// Of rank 0's output: the launcher knows, else stdout itself.
std::optional<int> terminal_columns(const comm::RankEnv& env) {
  if (env.terminal_columns || isatty(STDOUT_FILENO) == 0) return env.terminal_columns;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

Progress make_progress(const RunPlan& plan, const comm::RankEnv& env) {
  const bool speaks = env.rank == 0;
  return Progress({.total_steps = plan.total_steps,
                   .columns = terminal_columns(env),
                   .steps_per_print = plan.config.steps_per_print,
                   .wall_clock_breakdown = plan.config.wall_clock_breakdown,
                   .betas = plan.config.optimizer.betas},
                  [speaks](std::string_view text) {
                    if (!speaks) return;
                    std::fwrite(text.data(), 1, text.size(), stdout);
                    std::fflush(stdout);
                  });
}

}  // namespace

void Run::execute(const RunPlan& plan, const comm::RankEnv& env, const RunClock& clock) {
  MetricsFile metrics(env.rank == 0 ? plan.flags.metrics : "");
  Progress progress = make_progress(plan, env);
  mesh_ = comm::make_mesh(env);
  if (env.num_threads) at::set_num_threads(*env.num_threads);
  engine_ = engine::initialize(
      model::build_blocks(plan.spec), plan.config, mesh_,
      {.weights = model::open_weights(plan.flags.model, plan.spec, plan.config.seed)});
  for (const std::string& text : summary(plan, *engine_, at::get_num_threads())) {
    progress.line(text);
  }
  Trainer(plan, *engine_, {.progress = progress, .metrics = metrics, .clock = clock}).run();
}

}  // namespace zeroth::trainer
