// What messages say about a collective.
#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace zeroth::comm {

struct Call {
  Call(const char* collective, std::string_view data, const torch::Tensor& whole)
      : kind(collective), what(data), elements(whole.numel()), bytes(whole.nbytes()) {}

  // "all-gather of parameters of block 3 (layers.2) (1024 elements)"
  std::string describe() const {
    if (what.empty()) return fmt::format("{} of {} elements", kind, elements);
    return fmt::format("{} of {} ({} elements)", kind, what, elements);
  }

  const char* kind;
  std::string what;
  int64_t elements;  // of the whole tensor
  int64_t bytes;
};

// What c10d says; its stack trace follows on further lines.
inline std::string first_line(const std::exception& cause) {
  const std::string text = cause.what();
  return text.substr(0, text.find('\n'));
}

// Why a collective is given up that has waited so long.
inline std::string time_limit_text(std::chrono::milliseconds waited) {
  return fmt::format("waited {:.3g} s, the time limit (--timeout, DEEPSPEED_TIMEOUT)",
                     std::chrono::duration<double>(waited).count());
}

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace zeroth::comm
