#include "launcher/run/console_line_sink.h"

#include <utility>

namespace zeroth::launcher {

void ConsoleLineSink::write(std::string_view text, LineEnd end) {
  const std::string line = route_.prefix + std::string(text);
  if (end == LineEnd::kReturn) return console_.write_progress(line);
  console_.write_line(route_.sink, line);
  if (route_.log != nullptr) route_.log->write_line(text);
  route_.tail.add(text, route_.sink);
}

void ConsoleLineSink::when_empty(std::function<void()> callback) {
  route_.sink.when_empty(std::move(callback));
}

}  // namespace zeroth::launcher
