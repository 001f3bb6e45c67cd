#include "trainer/report/run_timer.h"

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/error.h"

namespace zeroth::trainer {
namespace {

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double epoch_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the age of this process by field 22 of its stat file: clock ticks from boot to its start.
double process_age() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  ZEROTH_CHECK(name_end != std::string::npos, "/proc/self/stat holds '{}'", text);
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  ZEROTH_CHECK(fields >> start_ticks, "/proc/self/stat holds '{}'", text);
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const double since_boot = static_cast<double>(boot.tv_sec) + 1e-9 * boot.tv_nsec;
  return since_boot - start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

RunTimer::RunTimer(std::optional<double> launch_time)
    : origin_(steady_now() - (launch_time ? epoch_now() - *launch_time : process_age())) {}

double RunTimer::seconds() const {
  return steady_now() - origin_;
}

}  // namespace zeroth::trainer
