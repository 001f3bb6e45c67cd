// What libFuzzer calls: --reader=NAME chooses, beside its own flags.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/readers.h"

namespace {

using namespace zeroth::fuzz;

const Reader* chosen = nullptr;

}  // namespace

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
