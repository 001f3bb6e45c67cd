#include "launcher/run/suspend.h"

#include <algorithm>
#include <csignal>

namespace zeroth::launcher {

void suspend_with(const std::vector<const RankProcess*>& ranks) {
  std::vector<const RankProcess*> running = ranks;
  std::erase_if(running, [](const RankProcess* rank) { return rank->is_stopped(); });
  for (const RankProcess* rank : running) rank->signal_group(SIGSTOP);
  struct sigaction by_default {
  }, ours{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &by_default, &ours);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &ours, nullptr);
  for (const RankProcess* rank : running) rank->signal_group(SIGCONT);
}

}  // namespace zeroth::launcher
