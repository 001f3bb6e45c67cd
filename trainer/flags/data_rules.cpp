// Rules of the flags about data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/printable.h"
#include "trainer/flags/flag_rules.h"

namespace zeroth::trainer {
namespace {

using Errors = std::vector<std::string>;

// Resolves escapes, since a shell passes \n on as two characters.
void resolve_separator(Flags& flags, Errors& errors) {
  if (!flags.records.separator) return;
  const std::string typed = *flags.records.separator;
  std::string text;
  for (size_t i = 0; i < typed.size(); ++i) {
    const char c = typed[i];
    if (c != '\\') {
      text.push_back(c);
      continue;
    }
    const char next = i + 1 < typed.size() ? typed[++i] : '\0';
    const size_t known = std::string_view("nt\\").find(next);
    if (known == std::string_view::npos) {
      errors.push_back(
          fmt::format("--separator {}: invalid escape, only \\n, \\t and \\\\ are supported",
                      shortened(typed)));
      return;
    }
    text.push_back("\n\t\\"[known]);
  }
  flags.records.separator = text;
}

void check_val_split(const Flags& flags, Errors& errors) {
  if (!flags.val_split) return;
  if (!(*flags.val_split > 0 && std::isfinite(*flags.val_split)))
    errors.push_back(fmt::format("--val-split {}: must be above 0", *flags.val_split));
  if (!flags.eval_data.empty()) errors.push_back("--val-split and --eval-data: give one of them");
  if (flags.eval_only) errors.push_back("--eval-only trains nothing: leave --val-split out");
  if (flags.on_long == data::OnLong::kSplit) {
    errors.push_back(
        "--val-split and --on-long split: parts of one record would be on both sides; use "
        "--eval-data, or --on-long cut or drop");
  }
  if (flags.max_eval_samples) {
    errors.push_back("--val-split and --max-eval-samples: --val-split N sets N samples aside");
  }
  if (*flags.val_split >= 1 && *flags.val_split != std::floor(*flags.val_split)) {
    errors.push_back(
        fmt::format("--val-split {}: must be a fraction below 1 or a whole number of samples",
                    *flags.val_split));
  }
}

// Resolves what is trained of a record. TRL's flags are about one kind of records each.
void resolve_trained_tokens(RawFlags& raw, Errors& errors) {
  using data::TrainOn;
  data::RecordOptions& records = raw.flags.records;
  const auto chosen = parse_choice<TrainOn>("--train-on", raw.train_on,
                                            {{"all", TrainOn::kAll},
                                             {"completion", TrainOn::kCompletion},
                                             {"assistant", TrainOn::kAssistant},
                                             {"last-assistant", TrainOn::kLastAssistant}},
                                            errors);
  const auto contradicts = [&](const std::optional<bool>& only, const char* name) {
    if (!chosen || !only || *only == (*chosen != TrainOn::kAll)) return;
    errors.push_back(fmt::format("--train-on {} and {} {} contradict each other: give one",
                                 raw.train_on, name, *only ? "True" : "False"));
  };
  contradicts(raw.assistant_only_loss, "--assistant_only_loss");
  contradicts(raw.completion_only_loss, "--completion_only_loss");
  if (raw.assistant_only_loss == false) records.chats_train_on = TrainOn::kAll;
  if (raw.completion_only_loss == false) records.pairs_train_on = TrainOn::kAll;
  if (chosen) records.chats_train_on = records.pairs_train_on = *chosen;
  raw.flags.train_on_given =
      chosen.has_value() || raw.assistant_only_loss || raw.completion_only_loss;
  records.chat_template = raw.chat_template;
}

}  // namespace

// run_clm.py joins all texts and cuts them into blocks; a command line
// that is spelled for it requests the same.
void resolve_data(RawFlags& raw, std::vector<std::string>& errors) {
  using data::LongText;
  Flags& flags = raw.flags;
  const auto chosen =
      parse_choice<LongText>("--long-text", raw.long_text,
                             {{"cut", LongText::kTruncate}, {"chunk", LongText::kChunk}}, errors);
  const bool for_run_clm = flags.spellings.is_typed_as("--seq-len", "block_size") ||
                           flags.spellings.is_typed_as("--data", "train_file");
  flags.token_type = parse_choice<data::TokenType>("--token-dtype", raw.token_dtype,
                                                   {{"uint16", data::TokenType::kUint16},
                                                    {"uint32", data::TokenType::kUint32},
                                                    {"int32", data::TokenType::kUint32}},
                                                   errors);
  if (flags.max_length && !flags.seq_len) {  // messages name the flag that was given
    flags.spellings.add("--seq-len", flags.spellings.lookup("--max-length"));
  }
  using data::OnBadRecord;
  using data::OnLong;
  flags.on_long = parse_choice<OnLong>("--on-long", raw.on_long,
                                       {{"cut", OnLong::kCut},
                                        {"drop", OnLong::kDrop},
                                        {"split", OnLong::kSplit},
                                        {"fail", OnLong::kFail}},
                                       errors)
                      .value_or(OnLong::kCut);
  flags.on_bad_record = parse_choice<OnBadRecord>(
                            "--on-bad-record", raw.on_bad_record,
                            {{"fail", OnBadRecord::kFail}, {"skip", OnBadRecord::kSkip}}, errors)
                            .value_or(OnBadRecord::kFail);
  flags.inspect_json = parse_choice<bool>("--inspect-format", raw.inspect_format,
                                          {{"text", false}, {"json", true}}, errors)
                           .value_or(false);
  if (flags.tokenize && flags.output.empty())
    errors.push_back("--tokenize needs --output PREFIX, to write PREFIX.bin and PREFIX.idx");
  const std::string directory = raw.dataset_dir.empty() ? "data" : raw.dataset_dir;
  for (std::string_view names = raw.dataset; !names.empty();) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    if (!name.empty())
      flags.data.push_back(fmt::format("{}/dataset_info.json:{}", directory, name));
  }
  flags.token_cache.enabled = raw.token_cache != "none";
  if (flags.token_cache.enabled) flags.token_cache.directory = raw.token_cache;
  resolve_separator(flags, errors);
  resolve_trained_tokens(raw, errors);
  flags.long_text_given = chosen.has_value();
  flags.long_text = chosen.value_or(for_run_clm ? LongText::kChunk : LongText::kTruncate);
  check_val_split(flags, errors);
}

}  // namespace zeroth::trainer
