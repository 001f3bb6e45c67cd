#include "launcher/run/supervisor.h"

#include <boost/asio/io_context.hpp>

#include "launcher/run/job_runner.h"
#include "launcher/run/local_ranks.h"

namespace zeroth::launcher {

JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options) {
  const int num_ranks = static_cast<int>(ranks.size());
  boost::asio::io_context io;
  LocalRanks local(io, {options.system_root, options.output_grace});
  JobRunner runner(io, local,
                   {.job = options.job,
                    .first_rank = ranks.front().rank,
                    .num_ranks = num_ranks,
                    .world_size = options.world_size == 0 ? num_ranks : options.world_size,
                    .unprefixed_lines = options.unprefixed_lines,
                    .progress_on_terminal = options.progress_on_terminal,
                    .rank_logs = options.rank_logs});
  local.start(program, ranks, runner);
  return runner.run();
}

}  // namespace zeroth::launcher
