// What a user says about a data file: how it is read, and which of its tokens are trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "data/samples/megatron_index.h"

namespace zeroth::data {

class Tokenizer;

// LongText selects the handling of records with a text of more than seq_len positions. Pairs are
// truncated in any case.
enum class LongText {
  kTruncate,  // each text is a sample, truncated at its end
  kChunk      // all texts, each with its end of text, are one stream that is cut into windows
};

// OnLong selects the handling of a record with more than seq_len positions.
enum class OnLong {
  kCut,    // truncated at its end
  kDrop,   // not used
  kSplit,  // several samples, each of which continues the one before it
  kFail    // an Error
};

// OnBadRecord selects the handling of a record that is not valid: an Error, or it is not used.
enum class OnBadRecord { kFail, kSkip };

// TokenCacheOptions selects where the ids of a file are kept for later runs.
struct TokenCacheOptions {
  bool enabled = false;
  std::filesystem::path directory = {};  // empty: ".zeroth-tokens" beside a file of some size
  double newer_than = 0;                 // seconds since 1970; an older entry is written anew
};

// TrainOn selects the trained parts of a record: everything, what follows the prompt, every
// assistant's message, or the last one.
enum class TrainOn { kAll, kCompletion, kAssistant, kLastAssistant };

// Version of the rules that make samples from a file; a resumed run keeps its version, and so its
// samples. In version 2 a prompt and its completion are encoded separately, so that no token
// crosses their boundary. In version 1 windows drop the tokens that do not fill a full window, a
// text that has begin and end tokens gets them twice, a byte order mark is part of a .txt file, and
// nothing separates prompt and completion by default. Which tokens of a conversation are trained
// does not depend on the version.
inline constexpr int kDataVersion = 3;

// RecordOptions is what a user says about the records of a file, and what of them is trained.
struct RecordOptions {
  // The format by its name, and fields; what is empty is recognized by the first record
  // (data/records/record_format.h).
  std::string format = {};
  // An entry of LLaMA-Factory's dataset_info.json in place of these, and of the fields below.
  std::filesystem::path dataset_info = {};
  std::string dataset_name = {};
  std::string text_field = {};
  std::string prompt_field = {};
  std::string completion_field = {};
  std::string messages_field = {};
  // Text after a record's prompt, as if it were in the file. It has no loss. Unset: nothing for
  // `prompt` and `completion`, which are TRL's and concatenated there, and a newline for any other
  // pair, whose fields are separate texts.
  std::optional<std::string> separator = {};
  // Of chats: a file in place of the model's template, and a JSON object of arguments for it.
  std::filesystem::path chat_template = {};
  std::string chat_template_kwargs = {};
  TrainOn chats_train_on = TrainOn::kAssistant;
  TrainOn pairs_train_on = TrainOn::kCompletion;
};

struct DatasetOptions {
  // Format by extension: .txt (one text), .bin (ids), .jsonl (an object per line), .json (an array
  // of objects), .csv, .parquet and .arrow (a table); compressed ones too (data_files.h).
  std::filesystem::path path;
  // Not owned; may be null for .bin. Used only during opening.
  const Tokenizer* tokenizer = nullptr;
  int64_t seq_len = 0;     // T: positions per window or longest sample
  int64_t vocab_size = 0;  // rows of the model's embedding; every id must be below it
  RecordOptions records = {};
  std::filesystem::path model_dir = {};  // where its chat template is
  LongText long_text = LongText::kTruncate;
  OnLong on_long = OnLong::kCut;
  OnBadRecord on_bad_record = OnBadRecord::kFail;
  std::optional<int64_t> max_samples = {};  // the first ones: records, or windows of a stream
  TokenCacheOptions token_cache = {};
  size_t num_threads = 1;  // that read and encode records
  // Width of the ids of a .bin file; unset: from Megatron's index beside it, otherwise uint16 for a
  // vocabulary up to 65536 and uint32 above, rejected if the file appears to differ.
  std::optional<TokenType> token_type = {};
  int version = kDataVersion;
  // Called during reading, here or in the process that writes the cache, with the bytes read so far
  // and those of the file.
  std::function<void(int64_t done, int64_t bytes)> on_read = {};
};

}  // namespace zeroth::data
