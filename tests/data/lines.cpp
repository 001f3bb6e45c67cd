#include "tests/data/lines.h"

#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

// The same numbers as the script draws.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t below(uint64_t limit) {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return (state_ >> 33) % limit;
  }

  const json& pick(const json& values) { return values.at(below(values.size())); }

 private:
  uint64_t state_;
};

std::string make_piece(Random& random, const json& parts) {
  const json& kind = random.pick(parts.at("kinds"));
  std::string text;
  if (kind.contains("texts")) {
    const auto& piece = random.pick(kind.at("texts")).get_ref<const std::string&>();
    const uint64_t count = kind.contains("repeat") ? 1 + random.below(kind.at("repeat")) : 1;
    for (uint64_t i = 0; i < count; ++i) text += piece;
    return text;
  }
  const uint64_t count = 1 + random.below(kind.at("most"));
  for (uint64_t i = 0; i < count; ++i) {
    const json& range = random.pick(kind.at("ranges"));
    const auto first = range.at(0).get<uint64_t>();
    const uint64_t size = range.at(1).get<uint64_t>() - first + 1;
    append_char(static_cast<char32_t>(first + random.below(size)), text);
  }
  return text;
}

}  // namespace

LineMaker::LineMaker(json parts) : parts_(std::move(parts)) {}

std::string LineMaker::line(uint64_t number) const {
  Random random(number);
  std::string text;
  const uint64_t count = 1 + random.below(12);
  for (uint64_t i = 0; i < count; ++i) {
    text += make_piece(random, parts_);
    text += random.pick(parts_.at("between")).get_ref<const std::string&>();
  }
  return text;
}

}  // namespace zeroth::data
