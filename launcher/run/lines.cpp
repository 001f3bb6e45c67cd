#include "launcher/run/lines.h"

namespace zeroth::launcher {

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  for (const char byte : bytes) {
    if (byte == '\n') {
      end_line(sink);
    } else if (byte == '\r' && split_returns_) {
      end_return(sink);
    } else {
      partial_.push_back(byte);
      if (partial_.size() >= kMaxLineBytes) end_line(sink);
    }
  }
}

void LineSplitter::flush(const Sink& sink) {
  if (!partial_.empty()) end_line(sink);
}

void LineSplitter::end_line(const Sink& sink) {
  sink(partial_.empty() ? returned_ : partial_, LineEnd::kNewline);
  partial_.clear();
  returned_.clear();
}

void LineSplitter::end_return(const Sink& sink) {
  if (partial_.empty()) return;
  sink(partial_, LineEnd::kReturn);
  returned_.swap(partial_);
  partial_.clear();
}

}  // namespace zeroth::launcher
