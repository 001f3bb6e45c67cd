// Program `finetune`: one rank of a fine-tuning run.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/bootstrap.h"
#include "comm/mesh.h"
#include "trainer/config_text.h"
#include "trainer/failure.h"
#include "trainer/flags.h"
#include "trainer/run.h"
#include "trainer/run_clock.h"
#include "trainer/run_plan.h"

namespace {

using namespace zeroth;

// What was wrong before the ranks were connected, every rank has found on its own. Rank 0 says it;
// by the time that another one would, a launcher has ended it.
constexpr std::chrono::seconds kRankZeroFirst{2};

int say(const std::string& text, const comm::RankEnv& env) {
  if (env.rank == 0) fmt::print("{}", text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  comm::RankEnv env;
  trainer::Run run;
  bool connecting = false;
  try {
    env = comm::RankEnv::from_environment();
    comm::load_device(env);
    const trainer::RunClock clock(env.launch_time);
    trainer::Flags flags = trainer::parse_flags({argv + 1, argv + argc});
    if (!flags.answer.empty()) return say(flags.answer, env);
    const trainer::RunPlan plan = trainer::make_plan(std::move(flags), env.world_size);
    if (plan.flags.print_config) return say(trainer::config_text(plan), env);
    connecting = true;
    run.execute(plan, env, clock);
    return 0;
  } catch (...) {
    const bool everybodys = !connecting && env.rank == 0;
    const auto failure =
        trainer::describe(std::current_exception(), env.rank, everybodys ? 1 : env.world_size);
    if (!connecting && env.rank > 0) std::this_thread::sleep_for(kRankZeroFirst);
    std::fflush(stdout);
    fmt::print(stderr, "{}", failure.message);
    std::_Exit(failure.code);  // without the destructors of `run`
  }
}
