// Description of a sample for a user: token by token, with its labels.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json/json.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "data/samples/dataset.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/tokenizer.h"

namespace zeroth::data {
namespace {

constexpr std::string_view kUnknownBytes = "\ufffd";

// Returns the part of a text that comes from `id`. Decoders depend on the tokens before, and a
// token may be only a part of a character.
std::string decode_next(const Tokenizer& tokenizer, const std::vector<int32_t>& before,
                        int32_t id) {
  if (id >= tokenizer.vocab_size()) return "";  // the model's vocabulary is larger
  std::vector<int32_t> ids = before;
  ids.push_back(id);
  const std::string prefix = tokenizer.decode(before), all = tokenizer.decode(ids);
  const std::string text =
      all.starts_with(prefix) ? all.substr(prefix.size()) : tokenizer.decode(std::span(&id, 1));
  return text.find(kUnknownBytes) == std::string::npos
             ? text
             : decode_byte_level(tokenizer.id_to_token(id));
}

struct SampleTokens {
  std::vector<int32_t> ids;
  std::vector<bool> trained;
};

// Returns all ids of each sample of a row, one more than it has positions. The id behind the last
// position is left out if it is not known, as it is not trained.
std::vector<SampleTokens> read_samples(const Dataset& dataset, int64_t index) {
  const auto length = static_cast<size_t>(dataset.length(index));
  std::vector<int64_t> tokens(length), targets(length);
  dataset.fill(index, tokens, targets);
  std::vector<SampleTokens> samples;
  size_t begin = 0;
  for (const int64_t positions : dataset.sample_lengths(index)) {
    const size_t end = begin + static_cast<size_t>(positions);
    SampleTokens sample{.ids = {tokens.begin() + begin, tokens.begin() + end}, .trained = {false}};
    const int64_t last = end == length ? dataset.last_id(index) : targets[end - 1];
    if (last != kIgnoreIndex) sample.ids.push_back(static_cast<int32_t>(last));
    for (; begin < end; ++begin) sample.trained.push_back(targets[begin] != kIgnoreIndex);
    sample.trained.resize(sample.ids.size());
    samples.push_back(std::move(sample));
  }
  return samples;
}

// Returns a line for each token.
std::string describe_tokens(const SampleTokens& sample, const Tokenizer* tokenizer, bool colored) {
  constexpr std::string_view kGreen = "\x1b[32m", kPlain = "\x1b[0m";
  std::string lines;
  std::vector<int32_t> before;
  for (size_t at = 0; at < sample.ids.size(); ++at) {
    const int32_t id = sample.ids[at];
    std::string line =
        fmt::format("{:>8} {:>8}  {:<7}", at, id, sample.trained[at] ? "trained" : "-");
    if (tokenizer != nullptr) {
      line += fmt::format("  \"{}\"", shortened(decode_next(*tokenizer, before, id)));
      before = {id};
      if (id >= tokenizer->vocab_size()) before.clear();
    }
    while (line.ends_with(' ')) line.pop_back();
    const bool green = colored && sample.trained[at];
    lines += fmt::format("{}{}{}\n", green ? kGreen : "", line, green ? kPlain : "");
  }
  return lines;
}

}  // namespace

std::string describe_sample(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer,
                            bool colored) {
  std::string lines;
  int64_t tokens = 0, trained = 0, number = 0;
  for (const SampleTokens& sample : read_samples(dataset, index)) {
    if (++number > 1) lines += fmt::format("-------- sample {} of the row\n", number);
    lines += describe_tokens(sample, tokenizer, colored);
    tokens += std::ssize(sample.ids);
    trained += std::ranges::count(sample.trained, true);
  }
  return fmt::format("{}: {}, {} trained\n{:>8} {:>8}  {:<7}  {}\n{}",
                     printable(dataset.sample_name(index)), pluralize(tokens, "token"), trained,
                     "position", "id", "target", tokenizer == nullptr ? "" : "text", lines);
}

std::string sample_json(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer) {
  SampleTokens sample;
  for (const SampleTokens& one : read_samples(dataset, index)) {
    sample.ids.insert(sample.ids.end(), one.ids.begin(), one.ids.end());
    sample.trained.insert(sample.trained.end(), one.trained.begin(), one.trained.end());
  }
  nlohmann::ordered_json json;
  std::vector<int32_t> known = sample.ids;  // a model's vocabulary may be larger
  if (tokenizer != nullptr)
    std::erase_if(known, [&](int32_t id) { return id >= tokenizer->vocab_size(); });
  json["text"] = tokenizer != nullptr ? nlohmann::ordered_json(tokenizer->decode(known))
                                      : nlohmann::ordered_json();
  json["ids"] = sample.ids;
  json["trained"] = nlohmann::ordered_json::array();
  for (size_t at = 0; at < sample.ids.size();) {
    const auto begin =
        std::find(sample.trained.begin() + static_cast<ptrdiff_t>(at), sample.trained.end(), true);
    const auto end = std::find(begin, sample.trained.end(), false);
    if (begin != end)
      json["trained"].push_back({begin - sample.trained.begin(), end - sample.trained.begin()});
    at = static_cast<size_t>(end - sample.trained.begin());
  }
  json["source"] = dataset.sample_name(index);
  return to_line(json);
}

std::string length_histogram(const Dataset& dataset) {
  constexpr int64_t kBins = 10, kBarWidth = 40;
  int64_t longest = 1;
  for (int64_t i = 0; i < dataset.size(); ++i) longest = std::max(longest, dataset.length(i));
  const int64_t width = (longest + kBins - 1) / kBins;
  std::vector<int64_t> counts((longest + width - 1) / width);
  for (int64_t i = 0; i < dataset.size(); ++i) ++counts[(dataset.length(i) - 1) / width];
  const int64_t max_count = std::ranges::max(counts);
  std::string text =
      fmt::format("{:>15} {:>10}\n", "positions", dataset.stats().rows > 0 ? "rows" : "samples");
  const auto first = std::ranges::find_if(counts, [](int64_t count) { return count > 0; });
  for (int64_t bin = first - counts.begin(); bin < std::ssize(counts); ++bin) {
    const std::string range =
        fmt::format("{}-{}", bin * width + 1, std::min((bin + 1) * width, longest));
    const int64_t bar = (counts[bin] * kBarWidth + max_count - 1) / max_count;
    text += fmt::format("{:>15} {:>10}  {}\n", range, counts[bin],
                        std::string(static_cast<size_t>(bar), '#'));
  }
  return text;
}

}  // namespace zeroth::data
