// Descriptions of a collective for messages.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/text/printable.h"
#include "comm/groups/group.h"
#include "device/tensor.h"

namespace zeroth::comm {

inline const char* to_string(Collective::OpType kind) {
  switch (kind) {
    case Collective::OpType::kAllReduce:
      return "all-reduce";
    case Collective::OpType::kAllGather:
      return "all-gather";
    case Collective::OpType::kReduceScatter:
      return "reduce-scatter";
    case Collective::OpType::kBroadcast:
      return "broadcast";
    case Collective::OpType::kAllToAll:
      return "all-to-all";
  }
  return "";
}

// Throws an InternalError unless sizes and dtypes fit a group of `ranks` ranks.
inline void check_tensor_shapes(const Collective& collective, int ranks) {
  const torch::Tensor& whole = collective.whole();
  const bool in_parts = collective.kind == Collective::OpType::kAllGather ||
                        collective.kind == Collective::OpType::kReduceScatter;
  const torch::Tensor& part =
      collective.kind == Collective::OpType::kReduceScatter ? collective.out : collective.in;
  ZEROTH_CHECK(whole.numel() == part.numel() * (in_parts ? ranks : 1) &&
                   whole.scalar_type() == part.scalar_type(),
               "whole {} {}, part {} {}, {} ranks", whole.numel(), whole.toString(), part.numel(),
               part.toString(), ranks);
  ZEROTH_CHECK(collective.kind != Collective::OpType::kAllToAll || whole.numel() % ranks == 0,
               "{} elements to {} ranks", whole.numel(), ranks);
}

struct CollectiveInfo {
  explicit CollectiveInfo(const Collective& collective)
      : kind(to_string(collective.kind)),
        what(collective.what),
        elements(collective.whole().numel()),
        bytes(collective.whole().nbytes()) {}

  // Returns "all-gather of parameters of block 3 (layers.2) (1024 elements)", for example.
  std::string describe() const {
    if (what.empty()) return fmt::format("{} of {} elements", kind, elements);
    return fmt::format("{} of {} ({} elements)", kind, what, elements);
  }

  const char* kind;
  std::string what;
  int64_t elements;  // elements of the whole tensor
  int64_t bytes;
};

// Returns the message of our own Error unchanged; of c10d's message only the first line, quoted,
// because a stack trace follows it.
inline std::string error_message(const std::exception& cause) {
  const bool has_reason = dynamic_cast<const Error*>(&cause) != nullptr ||
                          dynamic_cast<const std::system_error*>(&cause) != nullptr ||
                          dynamic_cast<const std::bad_alloc*>(&cause) != nullptr;
  return has_reason ? describe_exception(cause) : quotation(cause.what());
}

}  // namespace zeroth::comm
