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
#include "comm/group.h"

namespace zeroth::comm {

inline const char* name_of(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::kAllReduce:
      return "all-reduce";
    case Collective::Kind::kAllGather:
      return "all-gather";
    case Collective::Kind::kReduceScatter:
      return "reduce-scatter";
    case Collective::Kind::kBroadcast:
      return "broadcast";
    case Collective::Kind::kAllToAll:
      return "all-to-all";
  }
  return "";
}

// That sizes and dtypes fit in a group of `ranks`.
inline void require_fit(const Collective& collective, int ranks) {
  const torch::Tensor& whole = collective.whole();
  const bool in_parts = collective.kind == Collective::Kind::kAllGather ||
                        collective.kind == Collective::Kind::kReduceScatter;
  const torch::Tensor& part =
      collective.kind == Collective::Kind::kReduceScatter ? collective.out : collective.in;
  ZEROTH_CHECK(whole.numel() == part.numel() * (in_parts ? ranks : 1) &&
                   whole.scalar_type() == part.scalar_type(),
               "whole {} {}, part {} {}, {} ranks", whole.numel(), whole.toString(), part.numel(),
               part.toString(), ranks);
  ZEROTH_CHECK(collective.kind != Collective::Kind::kAllToAll || whole.numel() % ranks == 0,
               "{} elements to {} ranks", whole.numel(), ranks);
}

struct Call {
  explicit Call(const Collective& collective)
      : kind(name_of(collective.kind)),
        what(collective.what),
        elements(collective.whole().numel()),
        bytes(collective.whole().nbytes()) {}

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
