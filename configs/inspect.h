// What a configuration file says, for the launcher: a report key by key for `zeroth check-config`,
// and the ranks that a model needs. Errors in the contents are not thrown, and neither a model nor
// ranks are needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/resolve.h"

namespace zeroth::configs {

struct KeyReport {
  std::string path;  // as the file spells it
  // "honoured": a run uses the value. "no effect": the key is accepted, but nothing depends on it.
  // "refused": a run with it ends with an error. "off": it would be refused if it were enabled.
  // "unknown": Zeroth does not know the key.
  std::string state;
  std::string value;  // JSON; for "auto" its resolved value if that is known
  // Of an honored key: see Origins. Of another one: why it has no effect, is refused or is ignored.
  std::string origin;
};

// What a run would do with each key of a file, and with the honored keys that the file omits: no
// key is in both lists.
struct Inspection {
  std::vector<KeyReport> given;       // keys of the file, in its order
  std::vector<KeyReport> by_default;  // honored keys that the file omits
  std::vector<std::string> notes;
  std::vector<std::string> errors;  // empty: a run accepts the file
};

// Inspects a document. Without `ranks` it assumes the number that the three batch sizes imply if
// all of them are given, otherwise one, times tensor_parallel.autotp_size. Uses only `strict` and
// `accept_uncompressed` of the flags.
Inspection inspect(const Document& document, std::optional<int64_t> ranks,
                   const FlagValues& flags = {});

// Returns a Config of which only `pipeline` and `tensor_parallel` are set. Invalid values have no
// effect: resolve() reports them.
Config resolve_model_parallel(const Document& document, const FlagValues& flags);

}  // namespace zeroth::configs
