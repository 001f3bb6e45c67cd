// Description of a sample for a user: token by token, with its labels.
#include <fmt/format.h>

#include <vector>

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

}  // namespace

std::string describe_sample(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer) {
  const int64_t length = dataset.length(index);
  std::vector<int64_t> tokens(length), targets(length);
  dataset.fill(index, tokens, targets);
  // The last token is a target only.
  if (targets.back() != kIgnoreIndex) tokens.push_back(targets.back());
  std::string lines;
  int64_t num_labels = 0;
  std::vector<int32_t> before;
  for (size_t at = 0; at < tokens.size(); ++at) {
    const auto id = static_cast<int32_t>(tokens[at]);
    const bool is_target = at > 0 && targets[at - 1] != kIgnoreIndex;
    num_labels += is_target ? 1 : 0;
    lines += fmt::format("{:>8} {:>8}  {:<7}", at, id, is_target ? "trained" : "-");
    if (tokenizer != nullptr) {
      lines += fmt::format("  \"{}\"", shortened(decode_next(*tokenizer, before, id)));
      before = {id};
      if (id >= tokenizer->vocab_size()) before.clear();
    }
    while (lines.ends_with(' ')) lines.pop_back();
    lines += '\n';
  }
  return fmt::format("{}: {}, {} trained\n{:>8} {:>8}  {:<7}  {}\n{}",
                     printable(dataset.sample_name(index)), pluralize(std::ssize(tokens), "token"),
                     num_labels, "position", "id", "target", tokenizer == nullptr ? "" : "text",
                     lines);
}

}  // namespace zeroth::data
