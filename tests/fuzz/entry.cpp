// What libFuzzer calls: --reader=NAME chooses, beside its own flags.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/mutant.h"
#include "tests/fuzz/readers.h"

namespace {

using namespace zeroth::fuzz;

const Reader* chosen = nullptr;

std::string to_string(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Writes the mutant if there is one that fits; returns its size, otherwise 0.
size_t write_json_mutant(const std::vector<std::string>& originals, unsigned seed, uint8_t* out,
                         size_t max_size) {
  const auto text = json_mutant(originals, seed);
  if (!text || text->size() > max_size) return 0;
  std::memcpy(out, text->data(), text->size());
  return text->size();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Half of the changes of JSON are those of its values.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  const size_t written =
      seed % 2 == 0 ? write_json_mutant({to_string(data, size)}, seed / 2, data, max_size) : 0;
  return written > 0 ? written : LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned seed) {
  return write_json_mutant({to_string(data1, size1), to_string(data2, size2)}, seed, out, max_size);
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kFlag = "--reader=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(kFlag)) chosen = find_reader(argument.substr(kFlag.size()));
  }
  if (chosen != nullptr) return 0;
  std::fputs("--reader=NAME: one of", stderr);
  for (const Reader& reader : readers()) std::fprintf(stderr, " %s", reader.name);
  std::fputs("\n", stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    check(*chosen, {reinterpret_cast<const char*>(data), size});
  } catch (const Finding& finding) {
    std::fprintf(stderr, "finding: %s\n", finding.what());
    std::abort();
  }
  return 0;
}
