// The events of tools/make_monitor_fixtures.py.
#pragma once

#include <cmath>
#include <filesystem>
#include <vector>

#include "monitor/monitor.h"

namespace zeroth::monitor {

inline const std::filesystem::path kFixtures =
    std::filesystem::path(ZEROTH_SOURCE_DIR) / "tests/monitor/fixtures";

inline std::vector<Event> fixture_events() {
  return {{"Train/Samples/train_loss", 2.5, 8},
          {"Train/Samples/lr", 5e-05, 8},
          {"Train/Samples/loss_scale", 65536.0, 8},
          {"Train/Samples/train_loss", NAN, 16},
          {"Train/Samples/lr", 0.0001, 16},
          {"Train/Samples/elapsed_time_ms_forward", 123.456789, 16},
          {"Train/Samples/train_loss", -1e-07, 300},
          {"Train/Samples/lr", 1.2345678901234567e16, 3'000'000'000}};
}

}  // namespace zeroth::monitor
