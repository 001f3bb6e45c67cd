// What a configuration file says, key by key, for `zeroth check-config`: nothing is thrown about
// its contents, and nothing needs a model or ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/resolve.h"

namespace zeroth::configs {

struct KeyReport {
  std::string path;    // as the file spells it
  std::string state;   // "honoured", "no effect", "refused", "off", "unknown"
  std::string value;   // JSON; of an "auto" what it comes to where that is known
  std::string origin;  // honoured keys: see Origins; else why it has no effect or is refused, or
                       // that an unknown one is ignored
};

struct Inspection {
  std::vector<KeyReport> given;       // keys of the file, in its order
  std::vector<KeyReport> by_default;  // honoured keys that the file leaves out
  std::vector<std::string> notes;
  std::vector<std::string> errors;  // empty: a run would accept the file
};

// Without `ranks`: as many as the three batch sizes come to where all of them are given, else one,
// each of them times tensor_parallel.autotp_size.
// Of the flags only `strict` and `accept_uncompressed` count.
Inspection inspect(const Document& document, std::optional<int64_t> ranks,
                   const FlagValues& flags = {});

}  // namespace zeroth::configs
