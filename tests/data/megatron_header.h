// The beginning of an index as Megatron writes it, for tests of its readers.
#pragma once

#include <cstdint>
#include <string>

namespace zeroth::data {

template <typename Number>
void append_number(std::string& text, Number number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Up to where the lengths of the sequences begin; each sequence is a document.
inline std::string megatron_header(uint8_t kind, uint64_t sequences) {
  std::string text("MMIDIDX\0\0", 9);
  append_number(text, uint64_t{1});
  append_number(text, kind);
  append_number(text, sequences);
  append_number(text, sequences + 1);
  return text;
}

}  // namespace zeroth::data
