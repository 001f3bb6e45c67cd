// tokenizer DIR FILE [--show]: encodes the texts of FILE (JSON, a list of texts) once on one thread
// with DIR/tokenizer.json and prints bytes, tokens and seconds; --show prints ids and what they
// decode to instead. bench/tokenizer.py puts `tokenizers` beside it.
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/tokenizer.h"

namespace {

using nlohmann::json;
using zeroth::data::Tokenizer;

void show(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text);
    fmt::print("{}\n", json{{"ids", ids}, {"decoded", tokenizer.decode(ids)}}.dump());
  }
}

void measure(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  size_t bytes = 0, tokens = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text : texts) {
    bytes += text.size();
    tokens += tokenizer.encode(text).size();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{} {} {:.6f}\n", bytes, tokens, seconds.count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer DIR FILE [--show]\n");
    return 1;
  }
  try {
    const Tokenizer tokenizer = Tokenizer::load(argv[1]);
    const auto texts = zeroth::read_json({.name = argv[2]}).get<std::vector<std::string>>();
    argc > 3 ? show(tokenizer, texts) : measure(tokenizer, texts);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
