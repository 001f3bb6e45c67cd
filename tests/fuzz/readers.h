// Everything that reads what Zeroth did not write, as functions of bytes.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::fuzz {

struct Reader {
  const char* name;                // of its folder in tests/fuzz/corpus
  void (*read)(std::string_view);  // as a run reads them; throws what the reader throws
};

const std::vector<Reader>& readers();
// Null when there is none of this name.
const Reader* find_reader(std::string_view name);

// A reader that broke a promise.
class Finding : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes are read, or refused by an Error whose message is ours, short and printable; else a
// Finding. Whoever calls looks at the time and for signals.
void check(const Reader& reader, std::string_view bytes);

}  // namespace zeroth::fuzz
