// The display of a rank's output: on the launcher's outputs with the rank before it, and in the
// rank's log.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/run/output.h"
#include "launcher/run/rank_stream.h"

namespace zeroth::launcher {

class ConsoleLineSink final : public LineSink {
 public:
  struct Route {
    OutputSink& sink;
    Tail& tail;
    std::string prefix;
    bool progress = false;      // '\r' redraws a progress line
    OutputSink* log = nullptr;  // also receives every line, without the prefix
  };

  ConsoleLineSink(Console& console, Route route) : console_(console), route_(std::move(route)) {}

  void write(std::string_view text, LineEnd end) override;
  bool is_full() const override { return route_.sink.is_full(); }
  void when_empty(std::function<void()> callback) override;
  bool splits_returns() const override { return route_.progress; }

 private:
  Console& console_;
  Route route_;
};

}  // namespace zeroth::launcher
