#include "trainer/report/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/text/printable.h"
#include "data/samples/sample_text.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/report/summary.h"

namespace zeroth::trainer {

std::string inspection(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  const Samples& samples = plan.samples;
  const data::Dataset& dataset = samples.train ? *samples.train : *samples.eval;
  std::string text =
      samples.train ? train_line(flags.data, samples)
                    : eval_line(flags.eval_data.empty() ? flags.data : flags.eval_data, samples);
  text = printable(text) + '\n';
  for (const configs::Diagnostic& note : plan.notes) {
    const bool of_data =
        note.key == "--data" || note.key == "--seq-len" || note.key == "--long-text";
    if (of_data) text += printable(note.text) + '\n';
  }
  std::optional<data::Tokenizer> tokenizer;
  std::error_code unknown;
  if (std::filesystem::exists(std::filesystem::path(flags.model) / "tokenizer.json", unknown)) {
    tokenizer.emplace(data::Tokenizer::load(flags.model));
  }
  const int64_t count = std::min(flags.inspect_samples.value_or(0), dataset.size());
  for (int64_t i = 0; i < count; ++i) {
    text += '\n' + data::describe_sample(dataset, i, tokenizer ? &*tokenizer : nullptr);
  }
  return text;
}

}  // namespace zeroth::trainer
