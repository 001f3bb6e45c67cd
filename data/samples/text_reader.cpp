// Reader of a .txt file, one long text, as token ids. Blocks of it are encoded separately, each
// with some text on both sides, and joined where the tokens of both agree. In BPE a list of tokens
// is the encoding of its text if each two neighbors are that of theirs, so that what agrees around
// a seam is what the full text has there.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/machine/ordered_tasks.h"
#include "data/records/data_files.h"
#include "data/records/record_source.h"
#include "data/samples/record_reader.h"
#include "data/samples/token_windows.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

constexpr size_t kBlockBytes = size_t{256} << 10;
constexpr size_t kOverlapBytes = size_t{4} << 10;  // on each side of a block
constexpr size_t kMinAgreeingTokens = 16;

struct EncodedBlock {
  TextRange range;    // without the overlap
  Encoding encoding;  // with it, and offsets in the full text
  size_t first = 0;   // token of `encoding` that follows those of the previous block
};

// Returns the indices of the tokens whose bytes are all in `range`.
std::pair<size_t, size_t> tokens_inside(const Encoding& encoding, TextRange range) {
  const auto& offsets = encoding.offsets;
  const auto first = std::ranges::lower_bound(offsets, range.begin, {}, &TextRange::begin);
  const auto last = std::ranges::upper_bound(offsets, range.end, {}, &TextRange::end);
  return {first - offsets.begin(), std::max(first, last) - offsets.begin()};
}

// Returns whether a token begins behind all bytes of those before it.
bool begins_apart(const Encoding& encoding, size_t token) {
  const auto& [begin, end] = encoding.offsets[token];
  return begin < end && (token == 0 || encoding.offsets[token - 1].end <= begin);
}

// Returns the text of a compressed file; nullopt for any other.
std::optional<std::string> unpack(const std::filesystem::path& path) {
  if (data_file_type(path).compression == Compression::kNone) return std::nullopt;
  std::string text;
  for_each_block(path, [&](std::string_view block) {
    text += block;
    return true;
  });
  return text;
}

class TextReader {
 public:
  TextReader(const DatasetOptions& options, TokenStoreWriter& writer)
      : options_(options),
        path_(options.path.string()),
        writer_(writer),
        file_(options.path),
        unpacked_(unpack(options.path)),
        text_(unpacked_ ? *unpacked_ : file_.text()),
        tasks_(std::max<size_t>(options.num_threads, 1),
               [this](EncodedBlock block) { join(std::move(block)); }) {
    if (options.tokenizer == nullptr) throw Error("{}: text needs a tokenizer.json", path_);
    if (options.version > 1) text_ = without_byte_order_mark(text_);
  }

  void run() {
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = char_boundary(std::min(begin + kBlockBytes, text_.size()));
      tasks_.add([this, begin, end](size_t) { return encode({begin, end}); });
      begin = end;
    }
    tasks_.finish();
    if (!pending_.encoding.ids.empty()) write(pending_.encoding.ids.size());
  }

 private:
  // Returns the beginning of the character at `at`, or `at` if there is none.
  size_t char_boundary(size_t at) const {
    constexpr size_t kMaxBytes = 4;
    size_t begin = at;
    while (begin < text_.size() && begin > 0 && at - begin < kMaxBytes &&
           (static_cast<unsigned char>(text_[begin]) & 0xc0) == 0x80) {
      --begin;
    }
    return at - begin < kMaxBytes ? begin : at;
  }

  EncodedBlock encode(TextRange range) const {
    const size_t begin =
        char_boundary(range.begin > kOverlapBytes ? range.begin - kOverlapBytes : 0);
    const size_t end = char_boundary(std::min(range.end + kOverlapBytes, text_.size()));
    const std::string_view part = text_.substr(begin, end - begin);
    if (const auto offset = find_invalid_utf8(part))
      throw Error("{}: the text is not UTF-8 at byte {}", path_, begin + *offset);
    EncodedBlock block{.range = range, .encoding = {}, .first = 0};
    try {
      block.encoding = options_.tokenizer->encode_with_offsets(part);
    } catch (const Error& e) {
      throw Error("{}: {}", path_, e.what());
    }
    for (TextRange& offsets : block.encoding.offsets) {
      offsets.begin += begin;
      offsets.end += begin;
    }
    return block;
  }

  // Writes the tokens of the pending block up to the seam with the next one, which is pending then.
  void join(EncodedBlock next) {
    if (next.range.begin == 0) {
      pending_ = std::move(next);
      return;
    }
    const auto [in_pending, in_next] = find_seam(pending_, next);
    if (in_next == 0) {  // as in a word of many thousand characters: both are encoded together
      const auto& before = pending_.encoding.offsets;
      const size_t begin =
          pending_.first < before.size() ? before[pending_.first].begin : pending_.range.begin;
      pending_ = encode({pending_.range.begin, next.range.end});
      const auto& offsets = pending_.encoding.offsets;
      pending_.first = static_cast<size_t>(
          std::ranges::lower_bound(offsets, begin, {}, &TextRange::begin) - offsets.begin());
      return;
    }
    write(in_pending);
    if (!unpacked_)
      file_.drop_pages(std::as_bytes(std::span(text_.substr(0, pending_.range.begin))));
    pending_ = std::move(next);
    pending_.first = in_next;
  }

  // Returns the token with which the text goes on in both blocks; {0, 0} if they do not agree.
  static std::pair<size_t, size_t> find_seam(const EncodedBlock& block, const EncodedBlock& next) {
    const size_t border = next.range.begin;
    const TextRange window{border - std::min(border, kOverlapBytes / 2),
                           border + kOverlapBytes / 2};
    const auto [first, last] = tokens_inside(block.encoding, window);
    const auto [next_first, next_last] = tokens_inside(next.encoding, window);
    const auto range_of = [](const auto& values, size_t begin, size_t end) {
      return std::span(values).subspan(begin, end - begin);
    };
    if (last - first < kMinAgreeingTokens || first < block.first ||
        !std::ranges::equal(range_of(block.encoding.ids, first, last),
                            range_of(next.encoding.ids, next_first, next_last)) ||
        !std::ranges::equal(range_of(block.encoding.offsets, first, last),
                            range_of(next.encoding.offsets, next_first, next_last))) {
      return {0, 0};
    }
    for (size_t i = first + kMinAgreeingTokens / 2; i + kMinAgreeingTokens / 2 < last; ++i) {
      if (block.encoding.offsets[i].begin >= border && begins_apart(block.encoding, i))
        return {i, next_first + i - first};
    }
    return {0, 0};
  }

  // Writes the tokens of the pending block before `end`.
  void write(size_t end) {
    const auto ids = std::span(pending_.encoding.ids).subspan(pending_.first, end - pending_.first);
    const auto bad =
        std::ranges::find_if(ids, [&](int32_t id) { return id >= options_.vocab_size; });
    if (bad != ids.end()) {
      throw_invalid_token_id(path_, writer_.num_ids() + (bad - ids.begin()), *bad,
                             options_.vocab_size);
    }
    writer_.extend(ids);
    if (options_.on_read) {
      options_.on_read(static_cast<int64_t>(pending_.range.end),
                       static_cast<int64_t>(text_.size()));
    }
  }

  const DatasetOptions& options_;
  std::string path_;
  TokenStoreWriter& writer_;
  MappedFile file_;
  std::optional<std::string> unpacked_;  // of a compressed file
  std::string_view text_;
  EncodedBlock pending_;
  OrderedTasks<EncodedBlock> tasks_;  // destroyed first, as its threads use the other members
};

}  // namespace

RecordFacts read_text_file(const DatasetOptions& options, TokenStoreWriter& writer) {
  TextReader(options, writer).run();
  return {};
}

}  // namespace zeroth::data
