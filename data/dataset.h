// Training samples from a file: rows of token ids with the targets that each position should
// predict.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace zeroth::data {

class Tokenizer;

// A target that takes no part in the loss.
inline constexpr int64_t kIgnoreIndex = -100;

struct DatasetStats {
  int64_t samples = 0;      // kept, = Dataset::size()
  int64_t truncated = 0;    // kept, but cut at the end to seq_len + 1 ids
  int64_t dropped = 0;      // left out: no trained target remained inside the window
  int64_t lost_tokens = 0;  // positions of cut and dropped samples, or of windows, that are not
                            // in `tokens`
  int64_t tokens = 0;       // positions over all kept samples, without padding
  int64_t num_label_tokens = 0;  // of these, positions whose target is trained
  bool pairs = false;            // records are prompts and completions
  int64_t blank_lines = 0;       // of a .jsonl file, passed over
  bool packed = false;           // texts of records follow each other in windows
  std::string guessed_fields =
      {};                   // which fields were taken for prompt and completion by their names
  std::string fields = {};  // of records: "text", or the prompt's, the separator, the completion's
  std::string joint_example = {};  // of pairs: where prompt and completion of the first one meet
  std::string own_special_tokens =
      {};  // which texts have begin and end tokens themselves; empty: none
};

// Immutable after opening, safe to read from several threads. Indices run over [0, size()).
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;     // at least 1
  virtual int64_t seq_len() const = 0;  // longest `length` a sample may have

  // Positions of the sample without padding, in [1, seq_len()]; at least one of them is trained.
  virtual int64_t length(int64_t index) const = 0;

  // Writes inputs and next-token targets (kIgnoreIndex where no loss is taken), padded to the
  // spans' length, which is equal and at least length(index). Throws Error naming file, index and
  // value for an id outside the vocabulary.
  virtual void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const = 0;

  // Where the sample came from, for messages: "train.jsonl:17" (line) or "tokens.bin sample 17".
  virtual std::string sample_name(int64_t index) const = 0;

  virtual DatasetStats stats() const = 0;
};

// What becomes of records with a text of more than seq_len positions. Pairs are cut in any case.
enum class LongText {
  kTruncate,  // each is a sample, cut at its end
  kChunk      // all texts, each with its end of text, are one stream that is cut into windows
};

// How samples are made of a file, so that a resumed run has the samples it began with. In version 1
// windows leave out what fills no whole one, a text that has begin and end tokens gets them twice,
// a byte order mark is a part of a .txt file, and nothing separates prompt and completion by
// default.
inline constexpr int kDataVersion = 2;

// How wide the ids of a .bin file are, least significant byte first.
enum class TokenType { kUint16, kUint32 };

struct DatasetOptions {
  // By extension: .txt (one text), .bin (ids), .jsonl (an object a line), .json (an array of
  // objects).
  std::filesystem::path path;
  // Not owned, may be null for .bin; used only while opening.
  const Tokenizer* tokenizer = nullptr;
  int64_t seq_len = 0;     // T: positions per window or longest sample
  int64_t vocab_size = 0;  // rows of the model's embedding; every id must be below it
  // Records: both given, or both empty: then as the first record says (data/sample_fields.h).
  std::string prompt_field = {};
  std::string completion_field = {};
  // Records with a prompt: text at its end, as if it were in the file. Not trained. Unset:
  // default_separator() of the fields.
  std::optional<std::string> separator = {};
  LongText long_text = LongText::kTruncate;
  // Of a .bin file; unset: as the index of Megatron's beside it says, else uint16 up to a
  // vocabulary of 65536 and uint32 beyond, refused where the file looks otherwise.
  std::optional<TokenType> token_type = {};
  int version = kDataVersion;
  // Called while the file is read, with the bytes that are done and those of the file.
  std::function<void(int64_t done, int64_t bytes)> on_read = {};
};

// Whether a file of this name holds records with fields.
bool has_records(const std::filesystem::path& path);

// .txt, .bin and joined texts: sample i = tokens[i*T .. i*T+T], the last one may be shorter.
// Records: prefix + prompt + separator + completion + end of text, loss on the last two; or prefix
// + text + end of text, loss on all. A text that begins with the begin token or ends with the end
// token gets no second one. Throws Error naming file (and line).
std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options);

}  // namespace zeroth::data
