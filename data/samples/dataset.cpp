#include "data/samples/dataset.h"

#include <utility>

#include "base/error.h"
#include "data/samples/binary_tokens.h"
#include "data/samples/jsonl_samples.h"
#include "data/samples/record_reader.h"
#include "data/samples/sample_file_error.h"
#include "data/samples/token_windows.h"

namespace zeroth::data {

namespace {

std::unique_ptr<Dataset> open_records(const DatasetOptions& options) {
  EncodedRecords encoded = read_records(options);
  if (!encoded.stats.packed) return std::make_unique<JsonlSamples>(options, std::move(encoded));
  return std::make_unique<TokenWindows>(options, packed_tokens(std::move(encoded)));
}

}  // namespace

bool has_records(const std::filesystem::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".json";
}

std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options) {
  ZEROTH_CHECK(options.seq_len >= 1 && options.vocab_size >= 1, "seq_len {}, vocab_size {}",
               options.seq_len, options.vocab_size);
  if (const std::string why = sample_file_error(options.path); !why.empty()) {
    throw Error("{}{}", options.path.string(), why);
  }
  if (has_records(options.path)) return open_records(options);
  if (!options.prompt_field.empty() || !options.completion_field.empty()) {
    throw Error("{}: --prompt-field and --completion-field are for .jsonl and .json",
                options.path.string());
  }
  return std::make_unique<TokenWindows>(options, options.path.extension() == ".txt"
                                                     ? read_text_tokens(options)
                                                     : map_binary_tokens(options));
}

}  // namespace zeroth::data
