// tokenizer DIR FILE [--offsets|--show]: encodes the texts of FILE (JSON, a list of texts) once on
// one thread with DIR/tokenizer.json, with offsets if asked for, and prints bytes, tokens and
// processor seconds; --show prints ids and what they decode to instead. bench/tokenizer.py puts
// `tokenizers` beside it.
#include <fmt/format.h>

#include <ctime>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "data/tokenizer/tokenizer.h"

namespace {

using nlohmann::json;
using zeroth::data::Tokenizer;

void show(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text);
    fmt::print("{}\n", json{{"ids", ids}, {"decoded", tokenizer.decode(ids)}}.dump());
  }
}

void measure(const Tokenizer& tokenizer, const std::vector<std::string>& texts, bool offsets) {
  size_t bytes = 0, tokens = 0;
  const std::clock_t start = std::clock();
  for (const std::string& text : texts) {
    bytes += text.size();
    tokens += offsets ? tokenizer.encode_with_offsets(text).offsets.size()
                      : tokenizer.encode(text).size();
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print("{} {} {:.6f}\n", bytes, tokens, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer DIR FILE [--offsets|--show]\n");
    return 1;
  }
  try {
    const Tokenizer tokenizer = Tokenizer::load(argv[1]);
    const auto texts = zeroth::read_json({.name = argv[2]}).get<std::vector<std::string>>();
    const std::string_view option = argc > 3 ? argv[3] : "";
    option == "--show" ? show(tokenizer, texts) : measure(tokenizer, texts, option == "--offsets");
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
