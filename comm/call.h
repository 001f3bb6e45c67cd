// What messages say about a collective.
#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"

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

// An Error of ours as it is; of what c10d says the first line, quoted: its stack trace follows.
inline std::string words_of(const std::exception& cause) {
  const bool ours = dynamic_cast<const Error*>(&cause) != nullptr;
  return ours ? cause.what() : quotation(cause.what());
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
