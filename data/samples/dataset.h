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

#include "data/samples/dataset_options.h"

namespace zeroth::data {

class Tokenizer;

// Target without a loss.
inline constexpr int64_t kIgnoreIndex = -100;

// RecordFacts is what reading a file has found, besides the ids. It is kept with them
// (data/samples/token_cache.h).
struct RecordFacts {
  bool pairs = false;       // records are prompts and completions
  bool chats = false;       // records are conversations
  bool documents = false;   // records are texts, which may be chunked
  int64_t blank_lines = 0;  // skipped lines of a .jsonl file
  std::string format = {};  // of records, as RecordFormat describes it
  std::string fields = {};  // of records, and all that selects what is trained: for a fingerprint
  int64_t merged_boundaries = 0;   // pairs with a token of both prompt and completion
  std::string joint_example = {};  // of pairs: the boundary of prompt and completion in the first
                                   // one
  bool named_fields = false;       // by the caller; otherwise by the first record
  // Records that are not used as they are not valid, and messages about the first ones.
  int64_t bad_records = 0;
  std::vector<std::string> first_bad_records = {};
  // Of chats.
  int64_t turns = 0;                // of assistants, trained
  int64_t turns_without_end = 0;    // of them; the template writes no token that ends a turn
  int64_t joined_parts = 0;         // messages whose parts became one text
  int64_t with_special_tokens = 0;  // messages whose words hold special tokens
  // Fields whose words the template left out, with the number of messages; "tools", of records.
  std::map<std::string, int64_t> missing_fields = {};
  std::string own_special_tokens = {};  // texts with their own begin and end tokens; empty: none
};

struct DatasetStats : RecordFacts {
  int64_t samples = 0;      // number of samples kept
  int64_t rows = 0;         // into which they are packed; 0: each has its own
  int64_t truncated = 0;    // kept, but truncated at the end to seq_len + 1 ids
  int64_t cut_labels = 0;   // of them, without the end of what is trained
  int64_t split = 0;        // records that became several samples
  int64_t dropped = 0;      // skipped, as no label remained inside the window
  int64_t too_long = 0;     // skipped, as they have more than seq_len positions
  int64_t lost_tokens = 0;  // positions of truncated and dropped samples, or of windows, that are
                            // not in `tokens`
  int64_t tokens = 0;       // positions over all kept samples, without padding
  int64_t num_label_tokens = 0;  // of these, positions whose target is a label
  bool chunked = false;          // texts of records are concatenated and cut into windows
  bool windows = false;          // samples are windows of a stream, also of one without records
  std::string token_cache = {};  // where the ids come from, for a note; empty: read from the file
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

  // Returns the id behind the last position, which is its target if that has one.
  virtual int64_t last_id(int64_t index) const;

  // Returns the sample's origin, for messages: "train.jsonl:17" (line) or "tokens.bin sample 17".
  virtual std::string sample_name(int64_t index) const = 0;

  virtual DatasetStats stats() const = 0;
};

// Returns whether a file of this name holds records with fields.
bool has_records(const std::filesystem::path& path);

// Opens a dataset. Sample i of .txt, .bin and chunked texts is tokens[i*T .. i*T+T]; the last one
// may be shorter. A record's sample is prefix + prompt + separator + completion + end of text, with
// loss on the last two; or prefix + text + end of text, with loss on all. A text that begins with
// the begin token or ends with the end token gets no second one. Throws an Error that names file
// (and line).
std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options);

// Packs samples into rows of the same seq_len. A sample stays whole, with the inputs and targets
// that it has alone. The rows are a function of the lengths: groups of samples in file order are
// packed by best fit, the longest ones first. The statistics are of the packed samples, with the
// number of rows.
std::unique_ptr<Dataset> pack_samples(std::unique_ptr<Dataset> samples);

// Adds the numbers of another dataset, and of what it has found; texts are those of `part`.
void add_stats(const DatasetStats& part, DatasetStats& all);

// Returns the samples of all parts, one part after the other; there is at least one.
std::unique_ptr<Dataset> concatenate(std::vector<std::unique_ptr<Dataset>> parts);

// Divides samples in two: `num_held_out` of them, drawn by the seed, and the others. Both keep
// their order; one without samples is null.
struct SplitDataset {
  std::unique_ptr<Dataset> train, held_out;
};
SplitDataset split_samples(std::unique_ptr<Dataset> samples, int64_t num_held_out, uint64_t seed);

// Returns why `path` is not a file of samples, what it is instead, and what to do. The result
// depends on its name, on its type (a directory, a pipe), and on the first bytes of a file
// (compressed, a table, an array of NumPy's). The text continues a message after the path: ": no
// such file", " is a folder, ...". Empty for a file that open_dataset() reads.
std::string sample_file_error(const std::filesystem::path& path);

// Returns a line that names the sample, and a line for each of its tokens: position, id, whether it
// is a label, and its text in quotation marks, printable. `tokenizer` may be null: there is no text
// then. `colored`: lines of labels are green on a terminal.
std::string describe_sample(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer,
                            bool colored = false);

// Returns a sample as a JSON object in one line: "text", "ids", "trained" (ranges [first, end) of
// the ids), and "source", its sample_name().
std::string sample_json(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer);

// Returns how many samples have which length, as lines with bars.
std::string length_histogram(const Dataset& dataset);

}  // namespace zeroth::data
