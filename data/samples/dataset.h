// Dataset: training samples from a file, as rows of token ids with the target of each position.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zeroth::data {

class Tokenizer;

// Target without a loss.
inline constexpr int64_t kIgnoreIndex = -100;

struct DatasetStats {
  int64_t samples = 0;      // number of samples kept
  int64_t rows = 0;         // into which they are packed; 0: each has its own
  int64_t truncated = 0;    // kept, but truncated at the end to seq_len + 1 ids
  int64_t dropped = 0;      // skipped, as no label remained inside the window
  int64_t lost_tokens = 0;  // positions of truncated and dropped samples, or of windows, that are
                            // not in `tokens`
  int64_t tokens = 0;       // positions over all kept samples, without padding
  int64_t num_label_tokens = 0;  // of these, positions whose target is a label
  bool pairs = false;            // records are prompts and completions
  bool chats = false;            // records are conversations
  int64_t blank_lines = 0;       // skipped lines of a .jsonl file
  bool chunked = false;          // texts of records are concatenated and cut into windows
  std::string format = {};       // of records, as RecordFormat describes it
  std::string fields = {};  // of records, and all that selects what is trained: for a fingerprint
  std::string joint_example = {};  // of pairs: the boundary of prompt and completion in the first
                                   // one
  bool named_fields = false;       // by the caller; otherwise by the first record
  // Of chats.
  int64_t turns = 0;              // trained
  int64_t turns_without_end = 0;  // of them; the template writes no token that ends a turn
  int64_t joined_parts = 0;       // messages whose parts became one text
  // Fields whose words the template left out, with the number of messages.
  std::map<std::string, int64_t> missing_fields = {};
  std::string own_special_tokens = {};  // texts with their own begin and end tokens; empty: none
};

// A Dataset is immutable after opening and safe to read from several threads. Indices are in [0,
// size()).
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;     // at least 1
  virtual int64_t seq_len() const = 0;  // maximum `length` of a sample

  // Returns the sample's positions without padding, in [1, seq_len()]; at least one of them has a
  // label.
  virtual int64_t length(int64_t index) const = 0;

  // Returns the lengths of the samples in it, of which a packed row holds several.
  virtual std::vector<int64_t> sample_lengths(int64_t index) const { return {length(index)}; }

  // Writes inputs and next-token targets (kIgnoreIndex for no loss), padded to the spans' length,
  // which is equal and at least length(index). Throws an Error that names file, index and value for
  // an id outside the vocabulary.
  virtual void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const = 0;

  // Returns the sample's origin, for messages: "train.jsonl:17" (line) or "tokens.bin sample 17".
  virtual std::string sample_name(int64_t index) const = 0;

  virtual DatasetStats stats() const = 0;
};

// LongText selects the handling of records with a text of more than seq_len positions. Pairs are
// truncated in any case.
enum class LongText {
  kTruncate,  // each text is a sample, truncated at its end
  kChunk      // all texts, each with its end of text, are one stream that is cut into windows
};

// TrainOn selects the trained parts of a record: everything, what follows the prompt, every
// assistant's message, or the last one.
enum class TrainOn { kAll, kCompletion, kAssistant, kLastAssistant };

// Version of the rules that make samples from a file; a resumed run keeps its version, and so its
// samples. In version 2 a prompt and its completion are encoded separately, so that no token
// crosses their boundary. In version 1 windows drop the tokens that do not fill a full window, a
// text that has begin and end tokens gets them twice, a byte order mark is part of a .txt file, and
// nothing separates prompt and completion by default.
inline constexpr int kDataVersion = 3;

// TokenType is the width of the ids of a .bin file, which are little-endian.
enum class TokenType { kUint16, kUint32 };

// RecordOptions is what a user says about the records of a file, and what of them is trained.
struct RecordOptions {
  // The format by its name, and fields; what is empty is recognized by the first record
  // (data/records/record_format.h).
  std::string format = {};
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
  // Width of the ids of a .bin file; unset: from Megatron's index beside it, otherwise uint16 for a
  // vocabulary up to 65536 and uint32 above, rejected if the file appears to differ.
  std::optional<TokenType> token_type = {};
  int version = kDataVersion;
  // Called during reading, with the bytes read so far and those of the file.
  std::function<void(int64_t done, int64_t bytes)> on_read = {};
};

// Returns whether a file of this name holds records with fields.
bool has_records(const std::filesystem::path& path);

// Opens a dataset. Sample i of .txt, .bin and chunked texts is tokens[i*T .. i*T+T]; the last one
// may be shorter. A record's sample is prefix + prompt + separator + completion + end of text, with
// loss on the last two; or prefix + text + end of text, with loss on all. A text that begins with
// the begin token or ends with the end token gets no second one. Throws an Error that names file
// (and line).
std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options);

// Packs the first `num_samples`, or all if there are fewer, into rows of the same seq_len. A sample
// stays whole, with the inputs and targets that it has alone. The rows are a function of the
// lengths: groups of samples in file order are packed by best fit, the longest ones first. The
// statistics are of the packed samples, with the number of rows.
std::unique_ptr<Dataset> pack_samples(std::unique_ptr<Dataset> samples, int64_t num_samples);

// Returns why `path` is not a file of samples, what it is instead, and what to do. The result
// depends on its name, on its type (a directory, a pipe), and on the first bytes of a file
// (compressed, a table, an array of NumPy's). The text continues a message after the path: ": no
// such file", " is a folder, ...". Empty for a file that open_dataset() reads.
std::string sample_file_error(const std::filesystem::path& path);

// Returns a line that names the sample, and a line for each of its tokens: position, id, whether it
// is a label, and its text in quotation marks, printable. `tokenizer` may be null: there is no text
// then.
std::string describe_sample(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer);

}  // namespace zeroth::data
